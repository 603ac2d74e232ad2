# BERT-Large on H100, one host, eight GPUs.
# 96 samples per step, as everywhere, in micro-batches that fill this device's memory.
train_batch_size = 48
gradient_accumulation_steps = 2
eval_batch_size = 48
