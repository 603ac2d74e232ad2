# Device tests on A100, two hosts, eight GPUs each.
extends = "config_datasheet"
