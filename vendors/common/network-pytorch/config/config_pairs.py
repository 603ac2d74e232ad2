# Every pair of hosts once, the pairs of a round in parallel: the host x host matrix, and stragglers.
collective = "all_reduce"
pattern = "pairs"
repeats = 3
sizes = "8, 1G"
warmup_iterations = 5
iterations = 20
check_interval = 5
