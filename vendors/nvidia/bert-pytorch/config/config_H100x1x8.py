# BERT-Large on H100, one host, eight GPUs. Start, optimizer, samples a step (96 a GPU) and target are
# those of the published runs on A100; how a step is cut into micro-batches is ours.
data = "files"
init_checkpoint = "model.ckpt-28252.pt"
target_mlm_accuracy = 0.71
train_batch_size = 48
gradient_accumulation_steps = 2
eval_batch_size = 48
max_steps = 30000
max_samples = 4500000
eval_interval_samples = 500000
optimizer = "lamb"
learning_rate = 3.5e-4
weight_decay = 0.01
max_grad_norm = 1.0
lr_schedule = "linear"
precision = "bf16"
num_workers = 4
log_freq = 20
