# Two layers of Mixtral 8x7B on MI300X to MI355X, one host, one device.
extends = "config_two_layers"
serves = ["config_MI325Xx1x1", "config_MI350Xx1x1", "config_MI355Xx1x1"]
