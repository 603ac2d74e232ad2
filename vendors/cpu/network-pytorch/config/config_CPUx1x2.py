# CPU hosts, two ranks each, over gloo: seconds on a laptop.
serves = ["config_CPUx2x2"]
collective = "all_reduce"
dtype = "float32"
sizes = "8..16M x8"
warmup_iterations = 2
iterations = 10
check = True
