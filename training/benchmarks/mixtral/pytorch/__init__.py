"""Mixtral pretraining in PyTorch."""
