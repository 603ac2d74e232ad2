"""Layouts of one GPU that `predict` is held against: products, memory, attention or the host bounds them.

They fit 80 GB. Each trains 40 steps, and its record has the predicted iteration beside the measured one.
"""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["EAGER", "COMPILED", "FP8_TENSORWISE", "FP8_ROWWISE", "LLAMA3_1B", "LONG_32K", "SMALL"]
_CASE = {
    "model": "llama", "framework": "pytorch", "config": "config_short_7b", "repeat": 1, "nnodes": 1, "nproc": 1,
    "predict": True,
}  # fmt: skip
_SHORT = {
    "layout": "fixed", "train_batch_size": 1, "activation_checkpointing": "none", "max_steps": 40, "num_layers": 8,
    "nominal_parameters": None, "eval_file": None, "compile_backend": "inductor",
}  # fmt: skip


def _with(**settings: object) -> dict[str, object]:
    return {**_CASE, "overrides": {**_SHORT, **settings}}


EAGER = _with(compile_backend=None)
COMPILED = _with()
FP8_TENSORWISE = _with(fp8="tensorwise")
FP8_ROWWISE = _with(fp8="rowwise")
LLAMA3_1B = _with(
    num_layers=16, hidden_size=2048, ffn_hidden_size=8192, num_key_value_heads=8, vocab_size=128256,
    rope_theta=500000.0, train_batch_size=2,
)  # fmt: skip
LONG_32K = _with(num_layers=2, seq_length=32768)
SMALL = _with(
    num_layers=12, hidden_size=768, ffn_hidden_size=2048, num_attention_heads=12, num_key_value_heads=12,
    seq_length=1024, train_batch_size=8, compile_backend=None,
)  # fmt: skip
