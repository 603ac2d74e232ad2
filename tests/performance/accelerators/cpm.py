"""CPM-1-medium at true size on one H200, 100 steps in fp16 with a loss scale, once more with flash-attn."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["CPM_MEDIUM", "CPM_MEDIUM_FLASH"]
_LIMITS = {"max_steps": 100, "eval_interval_samples": None, "target_embedding_average": None, "target_loss": None}
_DATA = {"data": "synthetic", "train_samples": 3200, "eval_samples": 32, "init_checkpoint": None, "num_workers": 0}
_CASE = {"model": "cpm", "framework": "pytorch", "config": "config_H200x1x1", "repeat": 1, "nnodes": 1, "nproc": 1}

CPM_MEDIUM = {**_CASE, "overrides": _LIMITS | _DATA}
CPM_MEDIUM_FLASH = {**_CASE, "overrides": _LIMITS | _DATA | {"attention": "flash_attention_2"}}
