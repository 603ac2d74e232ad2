# BERT-Large on MI300X to MI355X, one host, eight devices: 96 samples per step, as everywhere, at once.
serves = ["config_MI325Xx1x8", "config_MI350Xx1x8", "config_MI355Xx1x8"]
train_batch_size = 96
gradient_accumulation_steps = 1
eval_batch_size = 96
