# One large all_reduce against the same data in 1000 small ones.
tool = "all_reduce_latency_comp"
warmup_iterations = 3
iterations = 10
