# The vendor's diagnostics at their quickest level, for an acceptance's rung of health.
tools = ["dcgmi"]
arguments = {"dcgmi": "diag -r 1 -j"}
