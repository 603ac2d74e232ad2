"""LLaMA with two layers of LLaMA-2 7B on one H200, 100 steps: the shared trainer's first steps on a device."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["LLAMA_TINY"]

LLAMA_TINY = {
    "model": "llama",
    "framework": "pytorch",
    "config": "config_H200x1x1",
    "repeat": 1,
    "nnodes": 1,
    "nproc": 1,
    "overrides": {"num_layers": 2, "nominal_parameters": None},
}
