"""`torchrun --nproc_per_node N -m training.benchmarks.network -- --set sizes=8..64M ...`."""

from training.benchmarks.network.pytorch.suite import main

if __name__ == "__main__":
    main()
