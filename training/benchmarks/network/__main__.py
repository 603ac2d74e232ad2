"""`torchrun --nproc_per_node N -m training.benchmarks.network -- --set sizes=8..64M ...`, a rank of the benchmark
(`--output_dir D`: the folder of its CSV, JSON lines and plot, where driver.launch gives it none);
`python -m training.benchmarks.network baseline ...`, what a good run taught, on the head node without torch.
"""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["baseline"]:
        from training.benchmarks.network.baseline import main as baseline

        sys.exit(baseline(sys.argv[2:]))
    from training.benchmarks.network.pytorch.suite import main

    main()
