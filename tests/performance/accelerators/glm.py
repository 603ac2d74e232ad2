"""GLM-Large at true size on one H200, 100 steps."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["GLM_LARGE"]
_LIMITS = {"max_steps": 100, "max_samples": None, "eval_interval_samples": None, "target_accuracy": None}
_DATA = {"data": "synthetic", "train_samples": 1600, "eval_samples": 16, "init_checkpoint": None, "num_workers": 0}

GLM_LARGE = {
    "model": "glm",
    "framework": "pytorch",
    "config": "config_H200x1x1",
    "repeat": 1,
    "nnodes": 1,
    "nproc": 1,
    "overrides": _LIMITS | _DATA,
}
