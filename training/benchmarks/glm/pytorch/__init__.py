"""GLM pretraining in PyTorch."""
