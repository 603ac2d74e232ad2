# A100, one host, one GPU: the path without a link.
extends = "config_full_range"
