# Two layers of Mixtral 8x7B on H100 and H200, one host, one GPU.
extends = "config_two_layers"
serves = ["config_H100x1x1"]
