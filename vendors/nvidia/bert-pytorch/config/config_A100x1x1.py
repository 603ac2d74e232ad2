# BERT-Large on A100, one host, one GPU.
eval_interval_samples = 200000
max_steps = 240000
