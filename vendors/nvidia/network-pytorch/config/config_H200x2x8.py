# H200, two hosts, eight GPUs each: the network between them.
extends = "config_full_range"
