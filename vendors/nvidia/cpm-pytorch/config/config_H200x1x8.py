# CPM-1-medium on H200, one host, eight GPUs.
# The published values, unchanged.
