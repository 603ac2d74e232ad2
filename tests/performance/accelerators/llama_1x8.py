"""LLaMA-2 7B on eight H200: FSDP2, tensor parallel in pairs and whole, compiled; and 1.3 billion parameters by DDP."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["LLAMA_AUTO", "LLAMA_FSDP", "LLAMA_FSDP_TP2", "LLAMA_TP8_SEQUENCE", "LLAMA_FSDP_COMPILED", "LLAMA_DDP"]
_SHORT = {"data": "synthetic", "train_samples": 2048, "eval_samples": 16, "max_epochs": None, "max_steps": 100}
_FIXED = _SHORT | {"layout": "fixed", "activation_checkpointing": False, "compile_backend": None}
_CASE = {"model": "llama", "framework": "pytorch", "config": "config_H200x1x8", "repeat": 1, "nnodes": 1, "nproc": 8}
_SMALL = {
    "num_layers": 24,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "ffn_hidden_size": 5504,
}

LLAMA_AUTO = {**_CASE, "overrides": _SHORT}
LLAMA_FSDP = {**_CASE, "overrides": _FIXED}
LLAMA_FSDP_TP2 = {**_CASE, "overrides": _FIXED | {"tensor_parallel_size": 2}}
LLAMA_TP8_SEQUENCE = {**_CASE, "overrides": _FIXED | {"tensor_parallel_size": 8, "sequence_parallel": True}}
LLAMA_FSDP_COMPILED = {**_CASE, "overrides": _FIXED | {"compile_backend": "inductor"}}
LLAMA_DDP = {**_CASE, "overrides": _FIXED | _SMALL | {"strategy": "ddp", "train_batch_size": 4}}
