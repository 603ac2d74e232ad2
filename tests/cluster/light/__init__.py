"""The benchmark whose ranks need no torch: `python -m training.benchmarks.light`."""
