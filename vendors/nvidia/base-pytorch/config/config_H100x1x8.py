# Device tests on H100, one host, eight GPUs.
extends = "config_datasheet"
