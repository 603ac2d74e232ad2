# Device tests on A100, two hosts, eight GPUs each.
extends = "config_A100x1x8"
