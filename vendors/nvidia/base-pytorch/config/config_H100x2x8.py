# Device tests on H100, two hosts, eight GPUs each.
extends = "config_H100x1x8"
