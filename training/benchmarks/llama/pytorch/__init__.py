"""LLaMA pretraining in PyTorch."""
