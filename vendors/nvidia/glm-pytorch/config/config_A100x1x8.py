# GLM-Large on A100, one host, eight GPUs: ReCoRD from the pretrained checkpoint.
# Samples a step and target are those of the published runs on A100; micro-batches are cut to the device's memory.
data = "files"
init_checkpoint = "blocklm-large-blank/200000/mp_rank_00_model_states.pt"
target_accuracy = 0.8
train_batch_size = 4
gradient_accumulation_steps = 2
eval_batch_size = 8
max_samples = 5553080
eval_interval_samples = 19200
optimizer = "adamw"
learning_rate = 1e-5
weight_decay = 0.1
max_grad_norm = 1.0
warmup = 0.1
lr_decay_steps = 4338
min_lr_ratio = 0.1
precision = "bf16"
num_workers = 4
log_freq = 20
