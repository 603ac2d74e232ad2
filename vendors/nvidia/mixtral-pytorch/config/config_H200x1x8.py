# Mixtral 8x7B on H200, one host of eight GPUs, each with one expert of every layer.
expert_parallel_size = 8
# 64 of the 512 sequences of a step on each GPU, in the largest micro-batches that its memory holds.
gradient_accumulation_steps = 64
layout = "auto"
