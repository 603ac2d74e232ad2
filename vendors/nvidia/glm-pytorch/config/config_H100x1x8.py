# GLM-Large on H100 and H200, hosts of eight GPUs.
# The published values, unchanged.
serves = ["config_H100x2x8", "config_H200x1x8", "config_H200x2x8"]
