# ml-engineering's all_reduce_bench: the bandwidth that is really there, a plot, and the verdict for training at scale.
extends = "config_all_reduce_bench"
sizes = "32K..16M x2"
warmup_iterations = 2
iterations = 10
