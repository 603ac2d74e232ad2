"""Runs a rank of the benchmark `base`: `torchrun --nproc_per_node N -m training.benchmarks.base -- ...`."""

from training.benchmarks.base.pytorch.suite import main

if __name__ == "__main__":
    main()
