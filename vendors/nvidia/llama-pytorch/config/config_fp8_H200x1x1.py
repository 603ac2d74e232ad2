# LLaMA-2 7B on H200, one host, one GPU, the products of its layers in FP8: 100 steps on data made on the fly.
extends = "config_H200x1x1"
fp8 = "tensorwise"
# What is eager casts each operand in several passes over it.
compile_backend = "inductor"
