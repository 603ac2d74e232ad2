# Device tests on H200, one host, one GPU.
extends = "config_datasheet"
max_percent_below_best = None
