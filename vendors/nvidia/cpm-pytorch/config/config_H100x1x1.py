# CPM-1-medium on H100, one host, one GPU.
# The rate of FlagPerf's _base.py.
learning_rate = 1e-4
