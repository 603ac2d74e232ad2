"""The network benchmark's measurements in PyTorch."""
