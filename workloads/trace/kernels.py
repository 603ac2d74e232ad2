"""Reads the kernels of a traced process out of torch's operators, in the words of the database of compute times.

A chain that frameworks fuse is told by the one of its operators that is in no other: rotary positions by the negation
of half of a head, a loss by its exponentials, a residual sum by two addends of the hidden size. Products are told apart
by how their operands lie: x(m, k) @ w(n, k)^T forward, dy @ w for the input's gradient, dy^T @ x for the weight's.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from workloads.compute.operators import stated
from workloads.trace.job import TraceJob

Read = tuple[str, tuple[int, ...]]
"""An operator of the database, and the sizes of its axes."""
BACKWARD_PRODUCTS = 4
"""Of attention that is not fused: gradients of values, of scores, of queries and of keys."""


class KernelReader:
    """Reads operators of one rank, one after the other.

    pauses: above 0 what runs is no computation of the rank.
    """

    def __init__(self, job: TraceJob) -> None:
        self.job, self.pauses = job, 0
        # Megatron-LM adds the gradients of weights to those of the micro-batches before, read and written.
        self.accumulated = 2 * (4 if job.grad_reduce_in_fp32 else 2) if job.frame == "Megatron" else 0
        self.gated = "gated_activation" if job.swiglu else "activation"
        self.scores: tuple[int, ...] = ()
        self.backward_products = 0
        self.masks: set[StorageWeakRef] = set()
        self.last: Read = ("", ())

    def kernel(self, name: str, args: Sequence[Any], *, back: bool) -> tuple[str, int, torch.dtype] | None:
        """The text of a kernel, the bytes that it moves and its type, None: it is none. back: no module runs."""
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        read = READERS.get(name)
        found = None if read is None or self.pauses else read(self, args, back)
        if found is None:
            return None
        self.last = found
        op, sizes = found
        # Of the router's many small operators some have 16 bits; together they compute in 32.
        dtype = torch.float32 if op.startswith("routing") else (tensors or args[0])[0].dtype
        more = self.accumulated * sizes[0] * sizes[2] if op == "gemm_wgrad" else 0
        text, moved = stated(op, *sizes, element=dtype.itemsize, more=more)
        return text, moved, dtype

    def update(self, name: str, args: Sequence[Any], into: torch.dtype | None) -> tuple[str, int] | None:
        """An optimizer step's operator and its elements, None: it is none. into: the type that they are cast to."""
        tensors = args[0] if args and isinstance(args[0], list | tuple) else args[:1]
        # DeepSpeed makes a gradient of 64 bits for its norm.
        op = "grad_norm" if into is torch.float64 else UPDATES.get(name)
        if op is None or self.pauses or not isinstance(tensors[0], torch.Tensor):
            return None
        kind = tensors[0].dtype
        other = {
            "mul_": self.job.frame == "Megatron",  # a decay of Adam, which the others have in one operator
            "copy_": args[-1].dtype is kind if name == "copy_" else False,
            "_to_copy": kind.itemsize != 2,
        }
        return None if other.get(name) else (op, sum(each.numel() for each in tensors))

    def heads(self, count: int) -> tuple[int, int]:
        """Query heads and groups of a rank with so many heads; keys and values were repeated before."""
        all_heads = self.job.num_attention_heads or count
        groups = all_heads if self.job.multi_latent_attention else self.job.num_query_groups or all_heads
        return count, max(1, count * groups // all_heads)


def _mm(_: KernelReader, args: Sequence[Any], back: bool) -> Read:
    first, second = args[-2:]
    (m, k), n = first.shape, second.shape[1]
    if first.stride(0) == 1 and first.stride(1) == m > 1:
        return "gemm_wgrad", (m, k, n)
    return ("gemm" if second.stride(0) == 1 and second.stride(1) == k else "gemm_dgrad"), (m, k, n)


def _scores(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    """The first product of attention; the second says how wide values are."""
    reader.scores = tuple(args[1].shape)
    return None


def _bmm(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    first, second = args
    job = reader.job
    if not back:
        every, tokens, qk = reader.scores
        heads, groups = reader.heads(every // job.micro_batch)
        return "attention", (job.micro_batch, tokens, heads, groups, qk, second.shape[2], 1)
    reader.backward_products = (reader.backward_products + 1) % BACKWARD_PRODUCTS
    if reader.backward_products == 1:
        reader.scores = (second.shape[2],)
    if reader.backward_products != BACKWARD_PRODUCTS - 1:
        return None
    heads, groups = reader.heads(first.shape[0] // job.micro_batch)
    return "attention_backward", (
        job.micro_batch, first.shape[2], heads, groups, second.shape[2], reader.scores[0], 1,
    )  # fmt: skip


def _fused_attention(op: str, first: int) -> Callable[[KernelReader, Sequence[Any], bool], Read]:
    """One operator on (batch, heads, tokens, width) of queries, keys and values from argument `first` on."""

    def read(reader: KernelReader, args: Sequence[Any], back: bool) -> Read:
        batch, every, tokens, qk = args[first].shape
        return op, (batch, tokens, *reader.heads(every), qk, args[first + 2].shape[3], 1)

    return read


def _rows(op: str) -> Callable[[KernelReader, Sequence[Any], bool], Read]:
    """An operator on the rows of its first tensor."""

    def read(_: KernelReader, args: Sequence[Any], back: bool) -> Read:
        shape = args[0].shape
        return op, (prod(shape[:-1]), shape[-1])

    return read


def _activation(suffix: str) -> Callable[[KernelReader, Sequence[Any], bool], Read]:
    def read(reader: KernelReader, args: Sequence[Any], back: bool) -> Read:
        return _rows(f"{reader.gated}{suffix}")(reader, args, back)

    return read


def _rope(_: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    if args[0].dim() != 4:
        return None
    *tokens, heads, half = args[0].shape
    return ("rope_backward" if back else "rope"), (prod(tokens), heads * 2 * half)


def _loss(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    return _rows("loss_backward" if back else "loss")(reader, args, back) if args[0].dim() > 1 else None


def _loss_back(_: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    """The exponentials, scaled by what comes for each token."""
    each, scale = args[0].shape, tuple[int, ...](getattr(args[1], "shape", ()))
    by_token = back and len(each) == len(scale) == 3 and scale[-1] == 1
    return ("loss_backward", (prod(each[:-1]), each[-1])) if by_token else None


def _storage(tensor: torch.Tensor) -> StorageWeakRef:
    """The tensor's storage, whose place in memory no other gets as long as this lives."""
    return StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch has no types here


def _mask(reader: KernelReader, args: Sequence[Any], back: bool) -> Read:
    """The mask of a dropout is drawn; its storage tells the gradient that is multiplied by it."""
    reader.masks.add(_storage(args[0]))
    return _rows("dropout")(reader, args, back)


def _masked(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    storages = [_storage(each) for each in args if back and isinstance(each, torch.Tensor)]
    return _rows("dropout_backward")(reader, args, back) if reader.masks.intersection(storages) else None


def _sum(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    first, second = args[0].shape, tuple(getattr(args[1], "shape", ()))
    alike = len(first) == 3 and first == second and first[-1] == reader.job.hidden_size
    return ("residual", (prod(first[:-1]), first[-1])) if alike else None


def _topk(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    """The choice of experts follows the router's product; the auxiliary loss chooses once more."""
    experts = reader.job.num_experts
    chosen = reader.last[0] == "gemm" and reader.last[1][2] == experts
    return ("routing", (args[0].shape[0], experts)) if chosen else None


def _permute(source: int) -> Callable[[KernelReader, Sequence[Any], bool], Read | None]:
    """Rows of the hidden size in another order; as many as argument `source` has."""

    def read(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
        width = reader.job.hidden_size
        return ("permute", (args[source].shape[0], width)) if args[0].shape[1:] == (width,) else None

    return read


def _gather(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    """The gradient of the weighted sum over experts, or of the choice of experts."""
    shape = args[0].shape
    if back and len(shape) == 2 and shape[1] == reader.job.num_experts:
        return "routing_backward", (shape[0], shape[1])
    return _permute(2)(reader, args, back)


def _cat(reader: KernelReader, args: Sequence[Any], back: bool) -> Read | None:
    """Parts of queries or keys put together, or of their gradients, or chunks of tokens in another order."""
    job, parts = reader.job, args[0]
    shape, width = parts[0].shape, sum(each.shape[-1] for each in parts)
    whole = {job.qk_nope_dim + job.qk_rope_dim, *([job.qk_nope_dim + job.v_head_dim] if back else [])}
    if job.multi_latent_attention and len(shape) == 4 and width in whole:
        return "copy", (shape[0] * shape[1], shape[2] * width)
    if len(shape) == 2 and shape[1] == job.hidden_size and job.num_experts:
        return "permute", (sum(each.shape[0] for each in parts), job.hidden_size)
    return None


UPDATES = {
    "_foreach_norm": "grad_norm", "_foreach_mul_": "grad_scale",
    "mul_": "grad_scale", "addcdiv_": "adam", "_fused_adamw_": "adam", "copy_": "cast", "_to_copy": "cast",
}  # fmt: skip
"""By aten's name of an operator that no other part of a step has: norm, clipping, Adam, weights in 16 bits."""
READERS: dict[str, Callable[[KernelReader, Sequence[Any], bool], Read | None]] = {
    "mm": _mm, "addmm": _mm, "baddbmm": _scores, "bmm": _bmm,
    "_scaled_dot_product_flash_attention_for_cpu": _fused_attention("attention", 0),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _fused_attention("attention_backward", 1),
    "native_layer_norm": _rows("norm"), "native_layer_norm_backward": _rows("norm_backward"),
    "silu": _activation(""), "gelu": _activation(""), "silu_backward": _activation("_backward"),
    "gelu_backward": _activation("_backward"), "neg": _rope,
    "embedding": lambda _reader, args, _back: ("embedding", (args[1].numel(), args[0].shape[1])),
    "embedding_dense_backward": _rows("embedding_backward"), "exp": _loss, "mul_": _loss_back, "bernoulli_": _mask,
    "mul": _masked, "_log_softmax": _rows("loss"), "_log_softmax_backward_data": _rows("loss_backward"),
    "add": _sum, "add_": _sum, "topk": _topk, "index_select": _permute(2), "scatter_add_": _permute(3),
    "gather": _gather, "index_add": _permute(3), "cat": _cat,
}  # fmt: skip
"""By aten's name of the operator."""
