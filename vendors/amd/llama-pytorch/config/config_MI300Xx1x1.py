# LLaMA-2 7B on MI300X to MI355X, one host, one device: 100 steps on data made on the fly.
extends = "config_short_7b"
serves = ["config_MI325Xx1x1", "config_MI350Xx1x1", "config_MI355Xx1x1"]
