# A LLaMA of 1.3 billion parameters on H100, one host, one GPU, the products of its layers in FP8: 100 steps.
extends = "config_H100x1x1"
fp8 = "tensorwise"
# What is eager casts each operand in several passes over it.
compile_backend = "inductor"
