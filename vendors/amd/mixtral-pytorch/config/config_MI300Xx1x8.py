# Mixtral 8x7B on MI300X to MI355X, one host of eight devices, each with one expert of every layer.
serves = ["config_MI325Xx1x8", "config_MI350Xx1x8", "config_MI355Xx1x8"]
expert_parallel_size = 8
gradient_accumulation_steps = 64
layout = "auto"
