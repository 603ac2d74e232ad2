# Mixtral 8x7B on four hosts of eight Ascend 910B: tokens stay within a host, gradients of experts do not.
expert_parallel_size = 8
gradient_accumulation_steps = 16
layout = "auto"
