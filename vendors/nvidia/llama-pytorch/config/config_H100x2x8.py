# LLaMA-2 7B on H100, two hosts, eight GPUs each.
extends = "config_H100x1x8"
