# BERT-Large in Paddle on one host, one GPU.
# FlagPerf's values for A100: a hundred times the samples, and so many steps that 2000 of them are the warm-up.
serves = ["config_H100x1x1", "config_H200x1x1"]
max_steps = 10000000
max_samples = 450000000
warmup = 0.0002
