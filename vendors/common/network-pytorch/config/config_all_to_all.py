# What mixture-of-experts training sends, in equal parts.
collective = "all_to_all"
sizes = "32K..16G x2"
warmup_iterations = 5
iterations = 20
