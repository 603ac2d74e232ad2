# BERT-Large in Paddle on A100, two hosts, eight GPUs each.
# FlagPerf's values for A100, unchanged.
