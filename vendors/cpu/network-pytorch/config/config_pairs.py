# Every pair of hosts once, those of a round at once: the host x host matrix, and who holds the others back.
collective = "all_reduce"
pattern = "pairs"
repeats = 3
sizes = "8, 4M"
warmup_iterations = 1
iterations = 20
