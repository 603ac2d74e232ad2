# LLaMA-2 7B on A100 of 40 or 80 GB, two hosts, eight GPUs each.
extends = "config_A100x1x8"
