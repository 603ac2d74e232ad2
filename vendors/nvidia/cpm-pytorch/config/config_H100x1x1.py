# CPM-1-medium on H100, one host, one GPU.
max_steps = 3000
max_samples = 439126000
