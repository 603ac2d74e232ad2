# What a flag costs by all_gather_object and by all_reduce.
tool = "all_gather_object_vs_all_reduce"
warmup_iterations = 10
iterations = 1000
