# Device tests on H200, one host, one GPU.
extends = "config_H100x1x1"
