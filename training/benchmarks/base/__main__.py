"""`torchrun --nproc_per_node N -m training.benchmarks.base -- --vendor V --config_file F`."""

from training.benchmarks.base.pytorch.suite import main

if __name__ == "__main__":
    main()
