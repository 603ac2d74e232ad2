# BERT-Large on H200, one host, one GPU.
extends = "config_H200x1x8"
eval_interval_samples = 200000
max_steps = 240000
