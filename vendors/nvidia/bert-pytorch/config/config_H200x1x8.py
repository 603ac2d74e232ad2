# BERT-Large on H200, one host, eight GPUs.
# 96 samples per step, as everywhere, in micro-batches that fill this device's memory.
train_batch_size = 96
gradient_accumulation_steps = 1
eval_batch_size = 96
