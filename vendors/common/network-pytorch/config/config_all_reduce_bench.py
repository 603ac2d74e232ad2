# ml-engineering's all_reduce_bench: the bandwidth that is really there, a plot, and the verdict for training at scale.
tool = "all_reduce_bench"
sizes = "32K..16G x2"
warmup_iterations = 5
iterations = 20
