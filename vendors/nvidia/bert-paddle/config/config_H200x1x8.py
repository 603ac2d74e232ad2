# BERT-Large in Paddle on H200, one host, eight GPUs.
# FlagPerf's values for A100, unchanged.
