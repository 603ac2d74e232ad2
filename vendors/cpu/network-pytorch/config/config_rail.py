# The ranks of the same local rank on all hosts, all rails in parallel.
extends = "config_rail"
sizes = "8, 4M"
warmup_iterations = 1
iterations = 5
