"""BERT pretraining in PyTorch."""
