# BERT-Large on Ascend 910B, one host, one device.
extends = "config_910Bx1x8"
eval_interval_samples = 200000
max_steps = 240000
