# What mixture-of-experts training sends, in equal parts.
extends = "config_all_to_all"
sizes = "32K..16M x2"
warmup_iterations = 2
iterations = 10
