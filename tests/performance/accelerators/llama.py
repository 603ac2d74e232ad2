"""LLaMA-2 7B on one H200, 100 steps; then with its blocks compiled."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["LLAMA_7B", "LLAMA_7B_COMPILED"]
_CASE = {
    "model": "llama", "framework": "pytorch", "config": "config_H200x1x1", "repeat": 1, "nnodes": 1, "nproc": 1,
    "predict": True,
}  # fmt: skip

LLAMA_7B = {**_CASE, "overrides": {"compile_backend": None}}
LLAMA_7B_COMPILED = {**_CASE, "overrides": {"compile_backend": "inductor"}}
