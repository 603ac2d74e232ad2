# BERT-Large in Paddle on H100, one host, one GPU.
# FlagPerf's values for A100, unchanged.
extends = "config_A100x1x1"
