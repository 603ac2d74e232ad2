# LLaMA-2 7B on MI300X to MI355X, one host, one device: 100 steps on data made on the fly.
serves = ["config_MI325Xx1x1", "config_MI350Xx1x1", "config_MI355Xx1x1"]
data = "synthetic"
train_samples = 1024
eval_samples = 16
synthetic_tokens = 1000
max_steps = 100
max_epochs = None
layout = "auto"
