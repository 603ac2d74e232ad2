# The vendor's diagnostics at a quick level, for an acceptance's rung of health.
tools = ["hl_qual"]
arguments = {"hl_qual": "-gaudi2 -c all -rmod parallel -f2 -t 20 -dis_mon"}
