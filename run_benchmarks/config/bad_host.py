"""Finds the bad hosts and links of a cluster, or none: measures every pair of its hosts, several pairs at a time.

    .venv/bin/python run_benchmarks/run.py --test-conf run_benchmarks/config/bad_host.py --set BAD_HOST.nnodes=64

From about 16 hosts on, `--set BAD_HOST.config=config_adaptive` finds the bad ones in fewer rounds.
"""

VENDOR = "nvidia"
RUNTIME = "docker"

CASES = ["BAD_HOST"]

BAD_HOST = {
    "model": "network",
    "framework": "pytorch",
    "config": "config_pairs",
    "nnodes": 2,  # all of HOSTS
    "nproc": 8,
}
