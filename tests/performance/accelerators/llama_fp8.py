"""LLaMA-2 7B on one H200, compiled, 100 steps: products in FP8 by both recipes of torchao."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["LLAMA_7B_FP8", "LLAMA_7B_FP8_ROWS"]
_CASE = {
    "model": "llama", "framework": "pytorch", "config": "config_H200x1x1", "repeat": 1, "nnodes": 1, "nproc": 1,
    "predict": True,
}  # fmt: skip

LLAMA_7B_FP8 = {**_CASE, "overrides": {"fp8": "tensorwise", "compile_backend": "inductor"}}
LLAMA_7B_FP8_ROWS = {**_CASE, "overrides": {"fp8": "rowwise", "compile_backend": "inductor"}}
