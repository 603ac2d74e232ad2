# Device tests on H200, one host, eight GPUs.
extends = "config_H100x1x8"
