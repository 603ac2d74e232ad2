# Four hosts at a time.
collective = "all_reduce"
pattern = "k_batch"
batch_hosts = 4
repeats = 3
sizes = "8, 1G"
warmup_iterations = 5
iterations = 20
