# LLaMA-2 7B on A100 of 40 or 80 GB, hosts of eight GPUs.
# The published values but for the layout: with 80 GB nothing needs to be computed again, with 40 GB no matrix product.
serves = ["config_A100x2x8"]
layout = "auto"
