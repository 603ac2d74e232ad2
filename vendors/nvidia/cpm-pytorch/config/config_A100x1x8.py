# CPM-1-medium on one host, eight GPUs.
# The published values, unchanged.
serves = ["config_H100x1x8", "config_H200x1x8"]
