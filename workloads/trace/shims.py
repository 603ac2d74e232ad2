"""Bends what needs a GPU, each trap in one function with its reason and the version it was met in.

Tensors of a traced process live on the device "meta": shapes without data. What asks CUDA, or a tensor's data, is
answered here. Versions: torch 2.13 (CPU build), megatron-core 0.16.1, deepspeed 0.19.8.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork

from workloads.job.routing import Routing
from workloads.trace.context_parallel import ContextAttention
from workloads.trace.kernels import KernelReader
from workloads.trace.stand_ins import DEVICE, Inert, PlainNorm, Splits, Tracker, WideValueAttention

MANY_RANKS = 16384
"""Worlds beyond this create only the groups that hold the traced rank."""


def without_cuda() -> None:
    """CUDA's devices, streams, events and markers.

    megatron-core allocates on torch.cuda.current_device(), also inside autograd functions; there a TorchFunctionMode is
    off (torch 2.13), so the function itself is replaced.
    """
    inert = Inert()
    cuda: Any = torch.cuda
    cuda.current_device = lambda: DEVICE
    cuda.device_count = lambda: 1
    cuda.get_device_capability = lambda *_: (9, 0)
    for name in ("Stream", "Event", "current_stream", "stream", "default_stream"):
        setattr(cuda, name, inert)
    for name in ("synchronize", "empty_cache", "set_stream", "set_device", "manual_seed", "set_rng_state"):
        setattr(cuda, name, lambda *_, **__: None)
    cuda.get_rng_state = lambda *_, **__: torch.empty(0, dtype=torch.uint8, device="cpu")
    cuda.nvtx.range_push = cuda.nvtx.range_pop = lambda *_, **__: None


def tensors_as_on_a_gpu() -> None:
    """Tensor.type() must say torch.cuda.BFloat16Tensor: megatron-core 0.16.1 sorts parameters by it; cuda() and cpu()
    are no copies, record_stream has no stream.
    """
    kinds = {
        torch.float32: "FloatTensor", torch.bfloat16: "BFloat16Tensor", torch.float16: "HalfTensor",
        torch.float64: "DoubleTensor", torch.int64: "LongTensor", torch.int32: "IntTensor", torch.bool: "BoolTensor",
        torch.uint8: "ByteTensor",
    }  # fmt: skip
    cast = torch.Tensor.type

    def kind(self: torch.Tensor, dtype: Any = None, **given: Any) -> Any:
        if dtype is not None or self.dtype not in kinds:
            return cast(self, dtype, **given)
        return f"torch.cuda.{kinds[self.dtype]}"

    tensor: Any = torch.Tensor
    tensor.type = kind
    tensor.cuda = lambda self, *_, **__: self
    tensor.cpu = lambda self, *_, **__: self
    tensor.pin_memory = lambda self, *_, **__: self
    tensor.record_stream = lambda self, *_: None


def values_of_nothing() -> None:
    """item() of a tensor without data is 1, not 0: Adam (torch 2.13) divides by 1 - beta ** step."""
    read = torch.Tensor.item
    listed = torch.Tensor.tolist

    def item(self: torch.Tensor) -> Any:
        if not self.is_meta:
            return read(self)
        return 1.0 if self.dtype.is_floating_point else self.dtype is torch.bool or 1

    def tolist(self: torch.Tensor) -> Any:
        return listed(self) if not self.is_meta else listed(torch.ones_like(self, device="cpu"))

    tensor: Any = torch.Tensor
    tensor.item, tensor.tolist = item, tolist
    tensor.__bool__ = lambda self: bool(self.item())
    tensor.__float__ = lambda self: float(self.item())
    tensor.__int__ = lambda self: int(self.item())


def objects_gathered_locally() -> None:
    """all_gather_object pickles into tensors of data (torch 2.13): every rank answers what this one says."""

    def gather(into: list[Any], value: Any, group: Any = None) -> None:
        into[:] = [value] * dist.get_world_size(group)

    anything: Any = dist
    anything.all_gather_object = gather


def watch_waits(waited: Callable[[FakeWork], None]) -> None:
    """A finished work does not say that it is waited for (torch 2.13): its methods do."""
    work: Any = FakeWork

    def wait(self: FakeWork, *_: object) -> bool:
        waited(self)
        return True

    work.wait = wait
    work.synchronize = wait
    work.block_current_stream = wait


def no_compiler() -> None:
    """torch.compile stands where megatron-core 0.16.1 fuses kernels: it costs seconds and changes no message."""
    anything: Any = torch
    anything.compile = lambda model=None, **_: model if model is not None else lambda function: function


def _replace_everywhere(package: str, old: object, new: object) -> None:
    """Put `new` where any loaded module of a package refers to `old`: they import by name, some by another one."""
    for module in [each for key, each in sys.modules.items() if key.startswith(package)]:
        for name in [name for name, value in vars(module).items() if value is old]:
            setattr(module, name, new)


def before_imports() -> None:
    """Puts in place all that a framework's import needs."""
    # Megatron-core 0.16.1 prefers Transformer Engine's layers where it can import it; they need a GPU.
    sys.modules.setdefault("transformer_engine", None)  # type: ignore[arg-type]
    no_compiler()
    without_cuda()
    tensors_as_on_a_gpu()
    values_of_nothing()
    objects_gathered_locally()


def megatron() -> None:
    """megatron-core 0.16.1, after its modules are imported."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    _replace_everywhere("megatron.core", WrappedTorchNorm, PlainNorm)
    _latent_attention()
    _half_precision()
    _clipping()
    _random_state()


def _latent_attention() -> None:
    """Let multi-latent attention use WideValueAttention; without Transformer Engine its layers are no classes."""
    from megatron.core.models import backends
    from megatron.core.transformer import multi_latent_attention
    from megatron.core.transformer.dot_product_attention import DotProductAttention

    for name in ("TELinear", "TEColumnParallelLinear", "Linear"):
        if not isinstance(getattr(multi_latent_attention, name, None), type):
            setattr(multi_latent_attention, name, type(name, (), {}))

    class AnyAttention:
        def __new__(cls, config: Any, *given: Any, **named: Any) -> torch.nn.Module:  # type: ignore[misc]
            kind = WideValueAttention if "v_channels" in named else DotProductAttention
            if config.context_parallel_size > 1:
                kind = ContextAttention
            module: torch.nn.Module = kind(config, *given, **named)
            return module

    backends.LocalSpecProvider.core_attention = lambda _: AnyAttention


def _half_precision() -> None:
    """bfloat16() of a module swaps the parameters' data, which fails without data (torch 2.13): make new parameters."""

    def bfloat16(self: torch.nn.Module) -> torch.nn.Module:
        for module in self.modules():
            for name, old in module.named_parameters(recurse=False):
                if old.dtype is torch.float32:
                    new = torch.nn.Parameter(torch.empty_like(old, dtype=torch.bfloat16))
                    new.__dict__.update(old.__dict__)
                    setattr(module, name, new)
        return self

    anything: Any = torch.nn.Module
    anything.bfloat16 = bfloat16


def _clipping() -> None:
    """Replace Apex's kernels for norm and scaling of gradients in megatron-core 0.16.1 by plain torch."""
    from megatron.core.optimizer import clip_grads

    def apply(kernel: Any, _: object, lists: Sequence[list[torch.Tensor]], *__: object) -> Any:
        if kernel is not clip_grads.l2_norm_impl:
            return torch._foreach_mul_(lists[0], torch.ones((), device=DEVICE))
        torch._foreach_norm(lists[0])
        return torch.zeros(1, dtype=torch.float32, device=DEVICE), None

    clip_grads.multi_tensor_applier = apply


def _random_state() -> None:
    """The generator of dropout and initialisation keeps states of a CUDA device (megatron-core 0.16.1): inert."""
    from megatron.core.tensor_parallel import random

    tracker = Tracker()
    _replace_everywhere("megatron.core", random.get_cuda_rng_tracker, lambda *_, **__: tracker)
    random._get_cuda_rng_state = lambda *_, **__: torch.empty(0, device="cpu")
    random._set_cuda_rng_state = lambda *_, **__: None
    random._get_all_rng_states = lambda *_, **__: ()
    random._set_all_rng_states = lambda *_, **__: None


def only_own_groups(parallel_state: Any, rank: int) -> None:
    """initialize_model_parallel makes every group of the world: 17 s at 65,536 ranks (torch 2.13). Make this rank's."""
    create = parallel_state.create_group

    def own(ranks: Iterable[int], *given: Any, **named: Any) -> Any:
        return create(ranks, *given, **named) if rank in ranks else None

    parallel_state.create_group = own


def dispatch(route: Routing, rank: int) -> None:
    """Which token goes where is data, and tensors here have none: the dispatchers of megatron-core 0.16.1 get the
    routing's numbers. rank: that in the tp x ep group.

    Without Transformer Engine, moe_utils (0.16.1) also lacks the name te_general_gemm that it compares with None.
    """
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    counts = torch.tensor(route.tokens_per_expert(rank), device="cpu")
    chunks = torch.tensor(route.chunks(rank), device="cpu")
    alltoall = token_dispatcher.MoEAlltoAllTokenDispatcher
    announce = alltoall.preprocess

    def preprocess(self: Any, routing_map: torch.Tensor) -> torch.Tensor:
        announce(self, routing_map)
        if self.ep_size > 1 or self.tp_size > 1:
            self.input_splits, self.output_splits = list(route.sent(rank)), list(route.received(rank))
            self.output_splits_tp = Splits(route.received_by_tensor_ranks(rank))
        self.num_global_tokens_per_local_expert = chunks
        return counts

    def permute(
        tokens: torch.Tensor,
        routing_map: torch.Tensor,
        probs: torch.Tensor | None = None,
        num_out_tokens: Any = None,
        **_: object,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        order = torch.zeros(int(num_out_tokens), dtype=torch.int64, device=DEVICE)
        chosen = None if probs is None else probs.reshape(-1).index_select(0, order)
        return tokens.index_select(0, order), chosen, order

    def gathered(self: Any, hidden_states: torch.Tensor, probs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.hidden_shape_before_permute = hidden_states.shape
        first = self.local_expert_indices[0]
        self.local_map = self.routing_map[:, first : self.local_expert_indices[-1] + 1].contiguous()
        total = int(counts.sum())
        permuted, self.local_probs, self.reversed_local_input_permutation_mapping = permute(
            hidden_states, self.local_map, probs, total
        )
        self.routing_map = None
        return permuted, counts, self.local_probs

    alltoall.preprocess = preprocess
    _replace_everywhere("megatron.core", moe_utils.permute, permute)
    token_dispatcher.MoEAllGatherTokenDispatcher.dispatch_postprocess = gathered


def shapes_of_others(reader: KernelReader) -> None:
    """DTensor (torch 2.13) runs an operator once more on whole tensors to learn the result's shape: nobody computes."""
    propagator: Any = import_module("torch.distributed.tensor._sharding_prop").ShardingPropagator
    learn = propagator._propagate_tensor_meta_non_cached

    def learned(*given: Any, **named: Any) -> Any:
        reader.pauses += 1
        try:
            return learn(*given, **named)
        finally:
            reader.pauses -= 1

    propagator._propagate_tensor_meta_non_cached = learned


def deepspeed() -> None:
    """DeepSpeed 0.19.8 compiles a C++ operator for shared memory when it starts on CPUs: without it.

    A compilation that is killed leaves a lock on which the next start waits indefinitely. Its zero.Init replaces
    tensors' constructors, whose signatures torch._dynamo (2.13) checks when it is first imported: import it before.
    """
    import_module("torch._dynamo")
    backend: Any = sys.modules["deepspeed.comm.torch"]
    backend.build_shm_op = lambda: None
    _lists_of_rank_0()
    _half_precision_on_cpus()


def _lists_of_rank_0() -> None:
    """ZeRO 3 (deepspeed 0.19.8) compares lists with those that rank 0 broadcasts; a fake broadcast brings nothing, so
    ranks other than 0 would stop. The comparing module believes to be rank 0 and sends its own, of the same bytes.
    """
    utils: Any = sys.modules["deepspeed.runtime.zero.utils"]
    utils.dist = SimpleNamespace(**{**vars(utils.dist), "get_rank": lambda: 0})


def _half_precision_on_cpus() -> None:
    """DeepSpeed 0.19.8 refuses fp16 where oneDNN has no kernels for it; torch (2.13) computes it without them."""
    accelerator: Any = sys.modules["deepspeed.accelerator"].get_accelerator()
    accelerator.is_fp16_supported = lambda: True
