# BERT-Large on Ascend 910B of 64 GB, one host, eight devices: 96 samples per step, as everywhere, in two micro-batches.
train_batch_size = 48
gradient_accumulation_steps = 2
eval_batch_size = 48
