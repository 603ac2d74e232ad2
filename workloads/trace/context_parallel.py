"""Runs Transformer Engine's own exchange of context parallelism in a traced process; its kernels give shapes alone.

transformer-engine 2.20.2 keeps that exchange in Python (pytorch/attention/dot_product_attention/context_parallel.py),
which calls compiled kernels. Here that one module is loaded, and what it imports of the others stands in for them.
"""

import sys
from enum import Enum
from importlib.machinery import ModuleSpec
from importlib.metadata import distribution
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import torch

from workloads.trace.recorder import Recorder
from workloads.trace.stand_ins import DEVICE, Inert

PACKAGE = "transformer-engine"
MODULE = "transformer_engine.pytorch.attention.dot_product_attention.context_parallel"
_IMPORTED = {
    "transformer_engine_torch": (),
    "transformer_engine.pytorch.utils": (
        "get_cudnn_version", "nvtx_range_pop", "nvtx_range_push", "get_device_compute_capability",
    ),
    "transformer_engine.pytorch.cpp_extensions.fused_attn": ("fused_attn_fwd", "fused_attn_bwd", "FusedAttnBackend"),
    "transformer_engine.pytorch.quantization": ("FP8GlobalStateManager",),
    "transformer_engine.pytorch.tensor.float8_tensor": ("Float8Tensor",),
    "transformer_engine.pytorch.tensor.storage.float8_tensor_storage": ("Float8TensorStorage",),
    "transformer_engine.pytorch.quantized_tensor": (
        "QuantizedTensorStorage", "prepare_for_saving", "restore_from_func_ctx",
    ),
    "transformer_engine.pytorch.jit": ("jit_fuser",),
    "transformer_engine.pytorch.graph": ("is_graph_capturing",),
    "transformer_engine.pytorch.constants": ("CPLoadBalancingStrategy", "dist_group_type"),
    "transformer_engine.pytorch.distributed": (
        "get_distributed_world_size", "get_distributed_rank", "gather_along_first_dim",
        "reduce_scatter_along_first_dim",
    ),
    "transformer_engine.pytorch.attention.dot_product_attention.utils": (
        "FlashAttentionUtils", "combine_and_quantize", "combine_and_dequantize", "print_quantizers",
        "mxfp8_quantize_fast_path", "get_attention_quantizers",
    ),
}  # fmt: skip
"""The names that the module imports, by the module that has them."""
_engine: Any = None


class _Quantised:
    """No tensor is one: nothing is traced in FP8."""


def load(recorder: Recorder) -> None:
    """Load Transformer Engine's module; its kernels are told to the recorder."""
    global _engine  # one process traces one job
    found: dict[str, Any] = {
        **dict.fromkeys(("Float8Tensor", "Float8TensorStorage", "QuantizedTensorStorage"), _Quantised),
        "get_cudnn_version": lambda: (9, 18, 0),
        "nvtx_range_pop": lambda *_: None,
        "nvtx_range_push": lambda *_: None,
        "get_device_compute_capability": torch.cuda.get_device_capability,
        "fused_attn_fwd": _Forward(recorder),
        "fused_attn_bwd": _Backward(recorder),
        "FusedAttnBackend": {"F16_arbitrary_seqlen": None, "FP8": None},
        "prepare_for_saving": lambda *tensors: (list(tensors), [None] * len(tensors)),
        "restore_from_func_ctx": lambda ctx: ctx.saved_tensors,
        "jit_fuser": lambda function: function,
        "is_graph_capturing": lambda: False,
        "CPLoadBalancingStrategy": Enum("CPLoadBalancingStrategy", ("DUAL_CHUNK_SWAP", "NO_LOAD_BALANCE")),
        "dist_group_type": torch.distributed.ProcessGroup,
        "get_distributed_world_size": lambda group=None: torch.distributed.get_world_size(group),
        "get_distributed_rank": lambda group=None: torch.distributed.get_rank(group),
        "get_attention_quantizers": lambda *_: (None,) * 6,
    }
    made = {}
    for name, imported in _IMPORTED.items():
        module: Any = ModuleType(name)
        for each in imported:
            setattr(module, each, found.get(each, Inert()))
        made[name] = module
    packages = {name.rpartition(".")[0] for name in (*_IMPORTED, MODULE) if "." in name}
    packages |= {name.rpartition(".")[0] for name in packages if "." in name} | {"transformer_engine"}
    before = {name: sys.modules.get(name) for name in (*packages, *made)}
    for name in packages:
        package = ModuleType(name)
        package.__path__ = []
        sys.modules[name] = package
    sys.modules.update(made)
    try:
        _engine = _module(str(distribution(PACKAGE).locate_file(f"{MODULE.replace('.', '/')}.py")))
    finally:
        sys.modules.update(before)  # type: ignore[arg-type] # None forbids the import
    for kind in (_engine.AttnFuncWithCPAndQKVOA2A, _engine.AttnFuncWithCPAndKVP2P):
        _unread(kind, recorder)


def _module(path: str) -> ModuleType:
    spec = spec_from_file_location(MODULE, path)
    assert isinstance(spec, ModuleSpec) and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _unread(kind: Any, recorder: Recorder) -> None:
    """Torch's operators of the exchange are parts of it, and no kernels that are read."""
    for name in ("forward", "backward"):
        run = getattr(kind, name)

        def paused(*given: Any, _run: Any = run, **named: Any) -> Any:
            if recorder.kernels is None:
                return _run(*given, **named)
            recorder.kernels.pauses += 1
            try:
                return _run(*given, **named)
            finally:
                recorder.kernels.pauses -= 1

        setattr(kind, name, staticmethod(paused))


class _Kernel:
    """A kernel of attention over (tokens, batch, heads, width)."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def tell(self, suffix: str, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: str) -> None:
        """Tell the recorder of one call; a causal mask has a square of tokens."""
        (tokens, batch, heads, qk), keys = query.shape, key.shape[0]
        rest = (heads, key.shape[2], qk, value.shape[3])
        if "causal" in mask:
            self.recorder.computed(f"attention{suffix}", (batch, tokens, *rest, 1), query.dtype)
        else:
            self.recorder.computed(f"attention_part{suffix}", (batch, tokens, keys, *rest), query.dtype)


class _Forward(_Kernel):
    def __call__(self, *given: Any, attn_mask_type: str, **_: object) -> tuple[Any, ...]:
        """The output, and what its backward pass keeps: sums of the softmax and random states."""
        query, key, value = (each.flatten(0, 1) if each.dim() == 5 else each for each in given[5:8])
        self.tell("", query, key, value, attn_mask_type)
        output = query.new_empty((*query.shape[:-1], value.shape[-1]))
        sums = torch.empty((query.shape[1], query.shape[2], query.shape[0], 1), dtype=torch.float32, device=DEVICE)
        return output, [sums, torch.empty(2, dtype=torch.int64, device=DEVICE)]


class _Backward(_Kernel):
    def __call__(self, *given: Any, attn_mask_type: str, **_: object) -> tuple[Any, ...]:
        """Gradients of queries, keys and values, and none of a bias."""
        query, key, value = (each.flatten(0, 1) if each.dim() == 5 else each for each in given[4:7])
        self.tell("_backward", query, key, value, attn_mask_type)
        return *(torch.empty_like(each) for each in given[4:7]), None


class ContextAttention(torch.nn.Module):
    """The core attention of megatron-core 0.16.1 with context parallelism, which it has in Transformer Engine alone."""

    def __init__(self, config: Any, *_: object, cp_comm_type: str | None = None, **__: object) -> None:
        super().__init__()
        self.cp_comm_type = config.cp_comm_type

    def forward(
        self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **__: object
    ) -> torch.Tensor:
        """Query, key and value of shape (sequence, batch, heads, channels) to (sequence, batch, heads * channels)."""
        from megatron.core import parallel_state

        tokens, batch = query.shape[:2]
        query, key, value = (each.contiguous() for each in (query, key, value))
        ends = torch.empty(batch + 1, dtype=torch.int32, device=DEVICE)
        whole = tokens * parallel_state.get_context_parallel_world_size()
        found = _engine.attn_forward_func_with_cp(
            self.training, query, key, value, ends, ends, whole, whole, None, None, 0.0,
            parallel_state.get_context_parallel_group(), parallel_state.get_context_parallel_global_ranks(),
            torch.cuda.current_stream(), self.cp_comm_type, qkv_format="sbhd", attn_mask_type="causal",
            use_fused_attention=True, window_size=(-1, 0),
        )  # fmt: skip
        shaped: torch.Tensor = found.reshape(tokens, batch, -1)
        return shaped
