"""Vendor `nvidia`: hosts with NVIDIA GPUs."""
