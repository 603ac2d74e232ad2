# LLaMA-2 7B on A100 of 40 or 80 GB, one host, eight GPUs.
# The published values but for the layout: with 80 GB nothing needs to be computed again, with 40 GB no matrix product.
layout = "auto"
