# GLM-Large on H200, two hosts, eight GPUs each.
# The published values, unchanged.
