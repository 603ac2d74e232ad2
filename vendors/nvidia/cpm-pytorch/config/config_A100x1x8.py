# CPM-1-medium on A100, one host, eight GPUs. Samples a step and embedding_average are those
# of the published runs on A100. An untrained model is not far from that target: the bound of the loss beside it is ours
# (chance is 10.3).
data = "files"
init_checkpoint = "cpm_model_states_medium.pt"
target_embedding_average = 0.92
target_loss = 5.0
train_batch_size = 32
eval_batch_size = 32
max_steps = 4000
eval_interval_samples = 20000
optimizer = "adam"
learning_rate = 5e-4
weight_decay = 0.05
warmup = 0.2
precision = "fp16"
init_loss_scale = 4096.0
num_workers = 4
log_freq = 20
