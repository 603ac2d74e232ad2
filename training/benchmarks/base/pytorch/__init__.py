"""Benchmark `base` in PyTorch."""
