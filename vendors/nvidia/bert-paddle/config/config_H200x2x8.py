# BERT-Large in Paddle on H200, two hosts, eight GPUs each.
# FlagPerf's values for A100, unchanged.
