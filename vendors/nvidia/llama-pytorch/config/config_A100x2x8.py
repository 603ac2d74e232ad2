# LLaMA-2 7B on A100, two hosts, eight GPUs each.
# The published values, unchanged.
