# Device tests on H200, two hosts, eight GPUs each.
extends = "config_H100x2x8"
