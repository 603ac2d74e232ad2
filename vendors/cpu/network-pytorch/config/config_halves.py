# Each half of the hosts among itself, then across the cut: the bisection bandwidth.
extends = "config_halves"
sizes = "8, 4M"
warmup_iterations = 1
iterations = 5
