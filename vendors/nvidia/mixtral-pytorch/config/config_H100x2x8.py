# Mixtral 8x7B on H100 and H200, two hosts of eight GPUs: tokens stay within a host, gradients of experts do not.
extends = "config_H200x1x8"
serves = ["config_H200x2x8"]
gradient_accumulation_steps = 32
