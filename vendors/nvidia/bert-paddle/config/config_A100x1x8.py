# BERT-Large in Paddle on hosts of eight GPUs.
# FlagPerf's values for A100, unchanged.
serves = ["config_A100x2x8", "config_H100x1x8", "config_H100x2x8", "config_H200x1x8", "config_H200x2x8"]
