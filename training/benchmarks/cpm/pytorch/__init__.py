"""CPM pretraining in PyTorch."""
