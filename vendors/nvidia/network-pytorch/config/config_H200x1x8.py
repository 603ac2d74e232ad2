# H200, one host, eight GPUs: NVLink.
extends = "config_full_range"
