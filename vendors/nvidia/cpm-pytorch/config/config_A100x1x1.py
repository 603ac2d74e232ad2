# CPM-1-medium on A100, one host, one GPU.
max_steps = 3000
max_samples = 439126000
