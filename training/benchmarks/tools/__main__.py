"""Runs a rank of the benchmark `tools`: `torchrun --nproc_per_node 1 -m training.benchmarks.tools -- ...`."""

from training.benchmarks.tools.pytorch.suite import main

if __name__ == "__main__":
    main()
