# One large all_reduce against the same data in 1000 small ones. 40 MB in all: the default, 4 GB, takes minutes here.
extends = "config_all_reduce_latency_comp"
sizes = "40000000"
warmup_iterations = 1
iterations = 3
