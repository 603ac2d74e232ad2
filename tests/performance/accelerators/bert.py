"""BERT-Large at true size on one H200, 100 steps, twice: with the kernels that are found, and with torch's alone."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["BERT_LARGE", "BERT_LARGE_TORCH"]
_LIMITS = {"max_steps": 100, "max_samples": None, "eval_interval_samples": None, "target_mlm_accuracy": None}
_DATA = {"data": "synthetic", "train_samples": 9600, "eval_samples": 96, "init_checkpoint": None, "num_workers": 0}
_CASE = {"model": "bert", "framework": "pytorch", "config": "config_H200x1x1", "repeat": 1, "nnodes": 1, "nproc": 1}

BERT_LARGE = {**_CASE, "overrides": _LIMITS | _DATA}
BERT_LARGE_TORCH = {**_CASE, "overrides": _LIMITS | _DATA | {"attention": "sdpa", "optimizer_impl": "foreach"}}
