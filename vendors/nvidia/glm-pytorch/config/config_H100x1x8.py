# GLM-Large on H100, one host, eight GPUs.
# The published values, unchanged.
