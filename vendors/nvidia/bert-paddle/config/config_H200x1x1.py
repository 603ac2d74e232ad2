# BERT-Large in Paddle on H200, one host, one GPU.
# FlagPerf's values for A100, unchanged.
extends = "config_A100x1x1"
