# CPM-1-medium on Ascend 910B, one host, one device.
max_steps = 3000
max_samples = 439126000
