# GLM-Large on H100, two hosts, eight GPUs each.
# The published values, unchanged.
