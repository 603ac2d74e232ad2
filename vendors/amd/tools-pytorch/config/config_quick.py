# The vendor's diagnostics for an acceptance's rung of health.
tools = ["rvs"]
