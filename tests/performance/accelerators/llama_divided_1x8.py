"""LLaMA-2 7B on eight H200 with layers divided into pipelines of four, and with sequences of 32,768 tokens in eight."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["LLAMA_PIPELINE", "LLAMA_CONTEXT"]
_SHORT = {
    "data": "synthetic", "train_samples": 1024, "eval_samples": 16, "max_epochs": None, "max_steps": 100,
    "train_batch_size": 1, "layout": "fixed", "activation_checkpointing": False,
}  # fmt: skip
_CASE = {"model": "llama", "framework": "pytorch", "config": "config_H200x1x8", "repeat": 1, "nnodes": 1, "nproc": 8}

LLAMA_PIPELINE = {**_CASE, "overrides": _SHORT | {"pipeline_parallel_size": 4, "gradient_accumulation_steps": 8}}
LLAMA_CONTEXT = {**_CASE, "overrides": _SHORT | {"context_parallel_size": 8, "seq_length": 32768}}
