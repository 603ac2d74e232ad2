# H200, one host, one GPU: the path without a link. nccl-tests' usual range, 8 B to 16 GiB.
collective = "all_reduce"
dtype = "float32"
sizes = "8..16G x2"
warmup_iterations = 5
iterations = 20
check = True
