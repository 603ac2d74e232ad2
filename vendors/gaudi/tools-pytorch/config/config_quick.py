# The vendor's diagnostics at a quick level, for an acceptance's rung of health.
# {model}: as hl_qual calls the host's devices, gaudi2 or gaudi3.
tools = ["hl_qual"]
arguments = {"hl_qual": "-{model} -c all -rmod parallel -f2 -t 20 -dis_mon"}
