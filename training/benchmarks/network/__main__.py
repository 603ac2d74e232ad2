"""Runs a rank of the network benchmark, or `baseline`: see suite.py and baseline.py.

    torchrun --nproc_per_node N -m training.benchmarks.network -- --set sizes=8..64M ... [--output_dir D]
    python -m training.benchmarks.network baseline ...

D is the folder of CSV, JSON lines and plot where driver.launch gives none. `baseline` needs no torch.
"""

import sys

if __name__ == "__main__":
    if sys.argv[1:2] == ["baseline"]:
        from training.benchmarks.network.baseline import PROGRAM

        sys.exit(PROGRAM.main(sys.argv[2:]))
    from training.benchmarks.network.pytorch.suite import main

    main()
