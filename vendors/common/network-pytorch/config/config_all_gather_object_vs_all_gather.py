# What a flag costs by all_gather_object and by all_gather.
tool = "all_gather_object_vs_all_gather"
warmup_iterations = 10
iterations = 1000
