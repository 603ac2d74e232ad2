# The ranks of the same local rank on all hosts, all rails in parallel.
collective = "all_reduce"
pattern = "rail"
repeats = 3
sizes = "8, 1G"
warmup_iterations = 5
iterations = 20
