# BERT-Large in Paddle on A100, one host, one GPU.
# FlagPerf's values for A100, unchanged.
