# CPM-1-medium on one host, one GPU.
serves = ["config_H100x1x1", "config_H200x1x1"]
max_steps = 3000
max_samples = 439126000
