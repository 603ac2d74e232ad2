# Four hosts at a time.
extends = "config_k_batch"
sizes = "8, 4M"
warmup_iterations = 1
iterations = 5
