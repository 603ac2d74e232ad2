# BERT-Large on H100, one host, one GPU.
extends = "config_H100x1x8"
eval_interval_samples = 200000
max_steps = 240000
