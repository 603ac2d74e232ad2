# CPM-1-medium on H100, one host, eight GPUs.
# The published values, unchanged.
