# LLaMA-2 7B on H200, one host, one GPU: 100 steps on data made on the fly.
# 16 bytes per parameter leave room for one sample.
extends = "config_short_7b"
