"""Two layers of LLaMA-2 7B on one H200, 100 steps: torch's layers, Transformer Engine's, and what `auto` takes."""

import sys

VENDOR = "nvidia"
RUNTIME = "process"
PYTHON = sys.executable
CASES = ["LAYERS_TORCH", "LAYERS_ENGINE", "LAYERS_AUTO"]
_CASE = {
    "model": "llama", "framework": "pytorch", "config": "config_H200x1x1", "repeat": 1, "nnodes": 1, "nproc": 1,
}  # fmt: skip
_SIZE = {"num_layers": 2, "nominal_parameters": None}

LAYERS_TORCH = {**_CASE, "overrides": {**_SIZE, "layers": "torch"}}
LAYERS_ENGINE = {**_CASE, "overrides": {**_SIZE, "layers": "transformer_engine"}}
LAYERS_AUTO = {**_CASE, "overrides": _SIZE}
