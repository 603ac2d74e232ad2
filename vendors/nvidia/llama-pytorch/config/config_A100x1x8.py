# LLaMA-2 7B on A100, one host, eight GPUs.
# The published values, unchanged.
