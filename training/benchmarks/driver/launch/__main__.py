"""Starts the workload of one node: see launcher.py."""

import sys

from training.benchmarks.driver.launch.launcher import main

sys.exit(main())
