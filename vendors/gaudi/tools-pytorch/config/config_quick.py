# The vendor's diagnostics at a quick level, for an acceptance's rung of health.
# hl_qual takes the model by name: on others than Gaudi 2 this gives no result, which is said; set `arguments` there.
tools = ["hl_qual"]
arguments = {"hl_qual": "-gaudi2 -c all -rmod parallel -f2 -t 20 -dis_mon"}
