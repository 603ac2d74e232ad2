# A100, one host, eight GPUs: NVLink.
extends = "config_full_range"
