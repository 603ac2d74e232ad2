"""Test configs."""

# A folder of vendors/: which accelerators the hosts have.
VENDOR = "cpu"

# "docker": a fresh container on each host and round. "process": processes under the host's own Python.
RUNTIME = "process"

# What the console shows: one of "debug", "info", "warning", "error".
FLAGPERF_LOG_LEVEL = "info"

# Seconds between two samples of the host monitors, and the longest time a round may take.
MONITOR_INTERVAL = 1.0
TIME_LIMIT = 3600

# The longest time that all rounds of a run may take together, preparation included.
# RUN_TIME_LIMIT = 86400

# A round is stopped, and the stacks of its ranks are kept, if a rank makes no progress for this many seconds.
# STALL_LIMIT = 1800

# How often a round is run again that not its workload but the infrastructure broke: a host, its engine.
# RETRY_LOST = 1

# Limits per node and round: the files that are collected, and the output that its tasks themselves print.
# MAX_COLLECT_BYTES = "16G"
# MAX_COLLECT_FILES = 20000
# MAX_OUTPUT_BYTES = "1M"

# Clean the hosts' page cache before each round (needs root there).
CLEAR_CACHES = False

# Where our files live on the hosts and in the containers. Defaults: ~/.clusterdyno there, <repository>/result here.
# FLAGPERF_PATH_HOST = "/home/flagperf/training"
# FLAGPERF_LOG_PATH_HOST = FLAGPERF_PATH_HOST + "/result/"

# Only for RUNTIME "docker": options of the containers, their shared memory, how images are made.
# ACCE_CONTAINER_OPT = " --gpus all"         # default: the vendor's
# ACCE_VISIBLE_DEVICE_ENV_NAME = "CUDA_VISIBLE_DEVICES"
# SHM_SIZE = "32G"
# PIDS_LIMIT = 32768                         # processes and threads of one container
# BASE_IMAGE = "nvcr.io/nvidia/pytorch:25.12-py3"
# PIP_SOURCE = "https://pypi.org/simple"
# IMAGE_OPTIONS = {"flash_attn": "2.8.3"}    # what else the vendor's template can install
# WHEELHOUSE = "/path/to/wheels"             # for sites without a package index
# IMAGE = "my/finished-image:tag"            # use this one instead of building

# The cases to run, by name.
CASES = ["NETWORK_ALLREDUCE_CPU_1X2"]

NETWORK_ALLREDUCE_CPU_1X2 = {
    # A model and framework of training/benchmarks/.
    "model": "network",
    "framework": "pytorch",
    # A file of vendors/<vendor>/<model>-<framework>/config/.
    "config": "config_CPUx1x2",
    # How many rounds, on how many hosts, with how many processes on each.
    "repeat": 1,
    "nnodes": 1,
    "nproc": 2,
    # Limits of this case, in seconds, and how often a failed round is run again.
    # "time_limit": 600,
    # "stall_limit": 120,
    # "retries": 1,
    # Whether the report has an iteration's time as predicted, too.
    # "predict": True,
    # Data on the hosts and where a container sees them; this benchmark makes its own.
    # "data_dir_host": "/home/data/bert/train/",
    # "data_dir_container": "/mnt/data/bert/train/",
}
