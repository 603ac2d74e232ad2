# Every pair of hosts once, the pairs of a round in parallel: the host x host matrix, and stragglers.
extends = "config_pairs"
sizes = "8, 4M"
warmup_iterations = 1
