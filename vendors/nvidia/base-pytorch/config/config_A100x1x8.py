# Device tests on A100, one host, eight GPUs.
extends = "config_datasheet"
