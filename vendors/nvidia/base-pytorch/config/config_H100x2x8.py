# Device tests on H100, two hosts, eight GPUs each.
extends = "config_datasheet"
