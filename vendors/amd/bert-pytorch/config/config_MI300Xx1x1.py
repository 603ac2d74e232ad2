# BERT-Large on MI300X to MI355X, one host, one device.
serves = ["config_MI325Xx1x1", "config_MI350Xx1x1", "config_MI355Xx1x1"]
extends = "config_MI300Xx1x8"
eval_interval_samples = 200000
max_steps = 240000
