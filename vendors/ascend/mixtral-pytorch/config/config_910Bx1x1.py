# One layer of Mixtral 8x7B on Ascend 910B, one host, one device.
extends = "config_two_layers"
num_layers = 1
