"""Runs a rank: `torchrun --nproc_per_node N -m training.benchmarks.aicb.pytorch -- --set workload=FILE ...`."""

from training.benchmarks.aicb.pytorch.suite import main

if __name__ == "__main__":
    main()
