# LLaMA-2 7B on A100, two hosts, eight GPUs each: one epoch; what is measured is speed.
data = "files"
train_batch_size = 1
eval_batch_size = 1
max_epochs = 1
optimizer = "adamw"
learning_rate = 1e-5
weight_decay = 0.1
beta1 = 0.9
beta2 = 0.95
eps = 1e-5
max_grad_norm = 1.0
precision = "bf16"
strategy = "fsdp"
activation_checkpointing = True
log_freq = 10
