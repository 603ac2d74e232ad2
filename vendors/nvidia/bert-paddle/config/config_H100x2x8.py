# BERT-Large in Paddle on H100, two hosts, eight GPUs each.
# FlagPerf's values for A100, unchanged.
