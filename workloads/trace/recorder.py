"""Records every collective and every wait of a traced process, in order, and answers the collective at once."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FakeWork, _resolve_process_group
from torch._subclasses import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from workloads.compute.operators import stated
from workloads.rows.calls import NOBODY, Call
from workloads.rows.ops import NEVER, CommType
from workloads.trace.kernels import KernelReader

FUNCTIONAL = "_c10d_functional"
NAMESPACES = ("c10d", FUNCTIONAL)
RECEIVED = ("output", "outputs", "output_tensor", "output_tensors")
"""Arguments of c10d's operators that they write and do not read."""


def size_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements, of any shape."""
    return tensor.numel() * tensor.element_size()


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's own class is untyped
    """While active, every `c10d` operator is recorded and answered by a finished work; all others run.

    phase, micro_batch: set by `during`; modules: the stack of the modules whose forward pass runs; behind: the module
    whose backward pass runs. kernels: reads computation, where it is wanted. zeroes: fill with zeros what real tensors
    would have received.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.iterations: list[list[Call]] = [[]]
        self.phase = "init"
        self.micro_batch: int | None = None
        self.modules: list[str] = []
        self.behind = ""
        self.zeroes = False
        self.kernels: KernelReader | None = None
        self.directions: dict[int, str] = {}
        self._issued = 0
        self._updating: tuple[str, str] | None = None
        self._updated = 0
        self._works: dict[int, tuple[FakeWork, list[Call], int, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        if any(map(_desugars, types)):
            return NotImplemented
        if self.kernels is not None and func.namespace == "aten":
            self._compute(func._schema.name.rpartition("::")[2], args, named.get("dtype"))
        if func.namespace not in NAMESPACES or func._schema.name.endswith("wait_tensor"):
            return func(*args, **named)
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **named}
        # DTensor's collectives return a tensor, which is waited for where it is used.
        blocks = func.namespace == FUNCTIONAL or given.get("async_op", True) is False
        ops = self.iterations[-1]
        ops.append(self._recorded(func._schema.name.rpartition("::")[2], given, blocks=blocks))
        if self.zeroes:
            _receive_zeros(given)
        if func.namespace == FUNCTIONAL:
            return func(*args, **named)
        work = FakeWork()
        if not blocks:
            self._works[id(work)] = work, ops, len(ops) - 1, self._issued
        return work.boxed() if len(func._schema.returns) == 1 else (args[0], work.boxed())

    def waited(self, work: FakeWork) -> None:
        """Note that a rank waited for this work; only the first time counts."""
        if found := self._works.pop(id(work), None):
            _, ops, at, issued = found
            ops[at] = replace(ops[at], overlap=self._issued - issued)

    def _compute(self, name: str, args: tuple[Any, ...], into: torch.dtype | None) -> None:
        """Note an operator that is a kernel of the iterations."""
        if self.kernels is not None and self.phase == "step" and (update := self.kernels.update(name, args, into)):
            self._update((update[0], name), update[1])
        if self.kernels is None or self.phase not in ("forward", "backward"):
            return
        found = self.kernels.kernel(name, args, back=self.phase == "backward" and not self.modules)
        if found is not None:
            self._note(*found)

    def _update(self, operator: tuple[str, str], count: int) -> None:
        """Add to the elements over which a part of the step runs, which is one kernel, by our name and by aten's."""
        if self._updating != operator:
            self._end_update()
        self._updating, self._updated = operator, self._updated + count

    def _end_update(self) -> None:
        """Note a part of the step that is complete."""
        if self._updating:
            self.computed(self._updating[0], (self._updated,), torch.float32)
        self._updating, self._updated = None, 0

    def computed(self, op: str, sizes: tuple[int, ...], dtype: torch.dtype) -> None:
        """Note a kernel that a stand-in ran, by the sizes of its operator's axes."""
        if self.kernels is not None:
            self._note(*stated(op, *sizes, element=dtype.itemsize), dtype)

    def _note(self, text: str, size: int, dtype: torch.dtype) -> None:
        self._issued += 1
        self.iterations[-1].append(
            Call(
                comm_type=CommType.computation, group="", ranks=NOBODY, dtype=str(dtype).removeprefix("torch."),
                bytes=size, module=self.modules[-1] if self.modules else self.behind,
                micro_batch=self.micro_batch, phase=self.phase, overlap=0, kernel=text,
            )
        )  # fmt: skip

    def _recorded(self, name: str, given: dict[str, Any], *, blocks: bool) -> Call:
        """The call; its group has torch's name and nobody's ranks until `groups` names it."""
        self._end_update()
        if "group_name" in given:
            group = _resolve_process_group(given["group_name"])
        else:
            group = dist.ProcessGroup.unbox(given["process_group"])
        read = READERS.get(name)
        if read is None:
            raise NotImplementedError(f"the tracer does not know the collective {name} of torch {torch.__version__}")
        kind, tensor, size, details = read(given, group)
        peer = details.get("peer")
        ahead = self.directions.pop(id(tensor), None)
        self._issued += 1
        return Call(
            comm_type=CommType[kind],
            group=group.group_name,
            ranks=NOBODY,
            dtype=str(tensor.dtype).removeprefix("torch."),
            bytes=size,
            overlap=0 if blocks else NEVER,
            in_splits=details.get("in_splits"),
            out_splits=details.get("out_splits"),
            peer=None if peer is None else dist.get_global_rank(group, peer),
            module="" if ahead else self.modules[-1] if self.modules else self.behind,
            micro_batch=None if ahead else self.micro_batch,
            phase=ahead or self.phase,
        )

    @contextmanager
    def during(self, phase: str, micro_batch: int | None = None) -> Iterator[None]:
        """Ops inside belong to this phase and micro-batch."""
        before = self.phase, self.micro_batch, self.behind
        self.phase, self.micro_batch, self.behind = phase, micro_batch, ""
        self.modules.clear()
        try:
            yield
        finally:
            self._end_update()
            self.phase, self.micro_batch, self.behind = before

    def next_iteration(self) -> None:
        """Begins the next iteration, to which all that follows belongs (the first begins after the set-up)."""
        self.iterations.append([])

    def watch(self, model: torch.nn.Module) -> None:
        """Name the modules of `model` as they run, forwards and backwards."""
        for name, module in model.named_modules():
            name = _numbered(name, model)
            if name:
                module.register_forward_pre_hook(self._enter(name))
                module.register_forward_hook(self._leave(name))

    def _enter(self, name: str) -> Callable[..., None]:
        def enter(*_: object) -> None:
            self.modules.append(name)

        return enter

    def _leave(self, name: str) -> Callable[..., None]:
        def behind(_: torch.Tensor) -> None:
            # A layer that is recomputed stops where it has what it needs (torch 2.13), without leaving its modules.
            self.modules.clear()
            self.behind = name

        def leave(_module: torch.nn.Module, _inputs: object, output: object) -> None:
            while self.modules and self.modules.pop() != name:
                pass
            for tensor in output if isinstance(output, tuple) else (output,):
                # A module returns what its last part returned: the part that computed it stays its name.
                if isinstance(tensor, torch.Tensor) and tensor.requires_grad and not hasattr(tensor, "_traced"):
                    tensor._traced = True  # type: ignore[attr-defined]
                    tensor.register_hook(behind)  # type: ignore[no-untyped-call]

        return leave


def _desugars(kind: type) -> bool:
    """Whether a class turns an operation into others, some of which send, as DTensor: it goes before this mode then."""
    own = getattr(kind, "__torch_dispatch__", torch._C._disabled_torch_dispatch_impl)
    return own is not torch._C._disabled_torch_dispatch_impl and not issubclass(kind, FakeTensor)


def _receive_zeros(given: dict[str, Any]) -> None:
    """Fill the tensors that a collective would have written."""
    found = [given[name] for name in RECEIVED if name in given]
    while found:
        each = found.pop()
        if isinstance(each, torch.Tensor):
            each.zero_()
        else:
            found += each


def _numbered(name: str, model: torch.nn.Module) -> str:
    """The name with a layer's number in the whole model, which Megatron's layers know, counted from 1."""
    before, layers, after = name.partition("layers.")
    number, dot, rest = after.partition(".")
    if not number.isdigit():
        return name
    layer = model.get_submodule(f"{before}{layers}{number}")
    known = getattr(layer, "layer_number", int(number) + 1)
    return f"{before}{layers}{known - 1}{dot}{rest}"


Read = tuple[str, torch.Tensor, int, dict[str, Any]]


def _first(given: dict[str, Any]) -> torch.Tensor:
    found = given.get("tensors")
    tensor: torch.Tensor = found[0] if found else given["tensor"]
    return tensor


def _buffer(kind: str) -> Callable[[dict[str, Any], dist.ProcessGroup], Read]:
    def read(given: dict[str, Any], _: dist.ProcessGroup) -> Read:
        return kind, _first(given), sum(map(size_of, given["tensors"])), {}

    return read


def _rooted(kind: str) -> Callable[[dict[str, Any], dist.ProcessGroup], Read]:
    def read(given: dict[str, Any], _: dist.ProcessGroup) -> Read:
        return kind, _first(given), sum(map(size_of, given["tensors"])), {"peer": given["root_rank"]}

    return read


def _functional(kind: str, *, gathers: bool = False) -> Callable[[dict[str, Any], dist.ProcessGroup], Read]:
    def read(given: dict[str, Any], group: dist.ProcessGroup) -> Read:
        return kind, given["input"], size_of(given["input"]) * (group.size() if gathers else 1), {}

    return read


def _barrier(given: dict[str, Any], _: dist.ProcessGroup) -> Read:
    return "barrier", given["tensor"], 0, {}


def _larger(kind: str, whole: str) -> Callable[[dict[str, Any], dist.ProcessGroup], Read]:
    def read(given: dict[str, Any], _: dist.ProcessGroup) -> Read:
        return kind, given[whole], size_of(given[whole]), {}

    return read


def _coalesced(kind: str, whole: str) -> Callable[[dict[str, Any], dist.ProcessGroup], Read]:
    def read(given: dict[str, Any], _: dist.ProcessGroup) -> Read:
        tensors = given[whole]
        return kind, tensors[0], sum(map(size_of, tensors)), {}

    return read


def _listed(kind: str, whole: str) -> Callable[[dict[str, Any], dist.ProcessGroup], Read]:
    """Collectives of lists of lists of tensors; ranks that are not the root have none, and one of their own."""

    def read(given: dict[str, Any], group: dist.ProcessGroup) -> Read:
        tensors = [tensor for each in given[whole] for tensor in each]
        if not tensors:
            (own,) = (name for name in ("input_tensors", "output_tensors") if name != whole)
            tensors = given[own] * group.size()
        return kind, tensors[0], sum(map(size_of, tensors)), {"peer": given.get("root_rank")}

    return read


def _all_to_all_single(given: dict[str, Any], group: dist.ProcessGroup) -> Read:
    source, target = given["input"], given["output"]

    def splits(sizes: Sequence[int], tensor: torch.Tensor) -> tuple[int, ...]:
        if not sizes:
            return (size_of(tensor) // group.size(),) * group.size()
        row = size_of(tensor) // tensor.shape[0] if tensor.shape[0] else 0
        return tuple(int(size) * row for size in sizes)

    into, out = splits(given["input_split_sizes"], source), splits(given["output_split_sizes"], target)
    details = {} if len({*into, *out}) == 1 else {"in_splits": into, "out_splits": out}
    return "all_to_all_single", source, size_of(source), details


def _point_to_point(kind: str, side: str) -> Callable[[dict[str, Any], dist.ProcessGroup], Read]:
    def read(given: dict[str, Any], _: dist.ProcessGroup) -> Read:
        return kind, _first(given), sum(map(size_of, given["tensors"])), {"peer": given[side]}

    return read


READERS: dict[str, Callable[[dict[str, Any], dist.ProcessGroup], Read]] = {
    "allreduce_": _buffer("all_reduce"),
    "allreduce_coalesced_": _buffer("all_reduce"),
    "broadcast_": _rooted("broadcast"),
    "reduce_": _rooted("reduce"),
    "barrier": _barrier,
    "_allgather_base_": _larger("all_gather_into_tensor", "output_tensor"),
    "_reduce_scatter_base_": _larger("reduce_scatter_tensor", "input_tensor"),
    "allgather_into_tensor_coalesced_": _coalesced("all_gather_into_tensor", "outputs"),
    "reduce_scatter_tensor_coalesced_": _coalesced("reduce_scatter_tensor", "inputs"),
    "allgather_": _listed("all_gather", "output_tensors"),
    "reduce_scatter_": _listed("reduce_scatter", "input_tensors"),
    "gather_": _listed("gather", "output_tensors"),
    "scatter_": _listed("scatter", "input_tensors"),
    "alltoall_base_": _all_to_all_single,
    "all_reduce": _functional("all_reduce"),
    "all_gather_into_tensor": _functional("all_gather_into_tensor", gathers=True),
    "reduce_scatter_tensor": _functional("reduce_scatter_tensor"),
    "send": _point_to_point("isend", "dst"),
    "recv_": _point_to_point("irecv", "src"),
}
