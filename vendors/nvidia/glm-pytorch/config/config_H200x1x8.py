# GLM-Large on H200, one host, eight GPUs.
# The published values, unchanged.
