# GLM-Large on MI300X to MI355X, one host, one device.
# 16 samples per step in one micro-batch.
serves = ["config_MI325Xx1x1", "config_MI350Xx1x1", "config_MI355Xx1x1"]
train_batch_size = 16
max_samples = 24135
