"""Vendor `mthreads`: Moore Threads' GPUs."""
