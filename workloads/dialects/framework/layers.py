"""Describes a transformer layer: its parameters on one rank and its events, in the order in which Megatron has them."""

from dataclasses import dataclass

from workloads.dialects.framework.context import CoreAttention
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.tensor import TensorParallel
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import SIZES, Call, Event, Ready, Use


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter on one rank: `numel` elements.

    reduced: under sequence parallelism its gradient is summed over the tensor ranks, each of which saw a part of the
    tokens. always: also without sequence parallelism (norms of queries and keys). alone: it has a bucket of its own
    under the distributed optimizer. expert: its replicas are the expert-data-parallel ranks.
    """

    name: str
    numel: int
    reduced: bool = False
    always: bool = False
    alone: bool = False
    expert: bool = False


def norm(name: str, size: int, args: WorkloadArgs, *, always: bool = False) -> list[Parameter]:
    """Scale, and with LayerNorm shift, of `size` elements each."""
    return [Parameter(full, size, reduced=not always, always=always) for full in _norm_names(name, args)]


def use(name: str, args: WorkloadArgs) -> list[Event]:
    """A norm begins."""
    return [Use(_norm_names(name, args))]


def ready(name: str, args: WorkloadArgs) -> list[Event]:
    """A norm's gradients are complete."""
    return [Ready(_norm_names(name, args))]


def _norm_names(name: str, args: WorkloadArgs) -> tuple[str, ...]:
    return (f"{name}.weight",) if args.normalization == "RMSNorm" else (f"{name}.weight", f"{name}.bias")


class Attention:
    """Self-attention with grouped queries: column-parallel qkv, row-parallel projection."""

    def __init__(
        self, args: WorkloadArgs, place: RankPlacement, tensor: TensorParallel, layer: str, number: int = 0
    ) -> None:
        self.args = args
        self.tensor = tensor
        self.norm = f"{layer}.input_layernorm"
        self.name = f"{layer}.self_attention"
        self.qkv, self.proj = f"{self.name}.linear_qkv", f"{self.name}.linear_proj"
        self.head = args.kv_channels or args.hidden_size // args.framework_heads
        self.groups = args.num_query_groups or args.framework_heads
        self.width = self.head * (args.framework_heads + 2 * self.groups) // place.tp
        self.shared_groups = self.groups < place.tp
        self.heads, self.own_groups = args.framework_heads // place.tp, max(1, self.groups // place.tp)
        self.kernels = tensor.kernels
        self.core = CoreAttention(
            args, place, tensor.kernels, f"{self.name}.core_attention", (self.heads, self.own_groups),
            (self.head, self.head), number,
        )  # fmt: skip

    def parameters(self) -> list[Parameter]:
        args, tp = self.args, self.tensor.size
        found = norm(self.norm, args.hidden_size, args)
        found.append(Parameter(f"{self.proj}.weight", args.hidden_size * (self.head * args.framework_heads // tp)))
        if args.add_bias_linear:
            found.append(Parameter(f"{self.proj}.bias", args.hidden_size, reduced=True))
        found.append(Parameter(f"{self.qkv}.weight", args.hidden_size * self.width))
        if args.add_bias_linear:
            found.append(Parameter(f"{self.qkv}.bias", self.width))
        for each in ("q", "k") if args.qk_layernorm else ():
            found += norm(f"{self.name}.{each}_layernorm", self.head, args, always=True)
        return found

    def forward(self, phase: str) -> list[Event]:
        args = self.args
        events: list[Event] = [*use(self.norm, args), *self.tensor.norm(phase, self.norm, joined=True)]
        events.append(Use((f"{self.qkv}.weight", f"{self.qkv}.bias")))
        events += self.tensor.column(phase, self.qkv, self.width, normed=True)
        if self.shared_groups:
            events.append(self.tensor.gather(phase, self.name, self._exchanged()))
        for each, heads in self._rotated():
            if args.qk_layernorm:
                name = f"{self.name}.{each}_layernorm"
                events += [*use(name, args), *self._small("norm", phase, name, heads)]
        if args.position_embedding == "rope":
            for _, heads in self._rotated():
                events += self.kernels.moving("rope", phase, self.name, heads * self.head)
        events += self.core.forward(phase)
        events.append(Use((f"{self.proj}.weight", f"{self.proj}.bias")))
        return [*events, *self.tensor.row(phase, self.proj, self.heads * self.head)]

    def backward(self) -> list[Event]:
        args = self.args
        inner = self.heads * self.head
        events: list[Event] = [Ready((f"{self.proj}.bias",)), *self.tensor.row_back(self.proj, inner)]
        events.append(Ready((f"{self.proj}.weight",)))
        events += self.core.backward()
        if args.position_embedding == "rope":
            for _, heads in reversed(self._rotated()):
                events += self.kernels.moving("rope_backward", "backward", self.name, heads * self.head)
        for each, heads in reversed(self._rotated()):
            if args.qk_layernorm:
                name = f"{self.name}.{each}_layernorm"
                events += [*self._small("norm_backward", "backward", name, heads), *ready(name, args)]
        if self.shared_groups:
            events.append(self.tensor.scatter("backward", self.name, self._exchanged()))
        events += self.tensor.column_back(self.qkv, self.width)
        events.append(Ready((f"{self.qkv}.weight", f"{self.qkv}.bias")))
        return [*events, *self.tensor.norm_back(self.norm), *ready(self.norm, args)]

    def _rotated(self) -> list[tuple[str, int]]:
        """Queries and keys, and how many heads each has on this rank."""
        return [("q", self.heads), ("k", self.own_groups)]

    def _small(self, op: str, phase: str, name: str, heads: int) -> list[Call]:
        """A norm of each head."""
        return self.kernels.moving(op, phase, name, self.head, self.tensor.tokens * heads)

    def _exchanged(self) -> int:
        """Bytes of the qkv of all heads, which fewer groups than tensor ranks gather, for they share heads."""
        return SIZES["bfloat16"] * self.tensor.tokens * self.width * self.tensor.size


class Mlp:
    """Column-parallel fc1 (twice as wide with a gate), row-parallel fc2. norm: the norm before it, "" for none."""

    def __init__(self, args: WorkloadArgs, tensor: TensorParallel, name: str, norm: str, width: int) -> None:
        self.args = args
        self.tensor = tensor
        self.name = name
        self.norm = norm
        self.fc1, self.fc2 = f"{name}.linear_fc1", f"{name}.linear_fc2"
        self.width = width // tensor.size
        self.gates = 2 if args.swiglu else 1

    def parameters(self) -> list[Parameter]:
        args = self.args
        gated = self.width * self.gates
        found = norm(self.norm, args.hidden_size, args) if self.norm else []
        found.append(Parameter(f"{self.fc1}.weight", args.hidden_size * gated))
        if args.add_bias_linear:
            found.append(Parameter(f"{self.fc1}.bias", gated))
        found.append(Parameter(f"{self.fc2}.weight", args.hidden_size * self.width))
        if args.add_bias_linear:
            found.append(Parameter(f"{self.fc2}.bias", args.hidden_size, reduced=True))
        return found

    def forward(self, phase: str) -> list[Event]:
        events: list[Event] = []
        if self.norm:
            events += [*use(self.norm, self.args), *self.tensor.norm(phase, self.norm, joined=True)]
        events.append(Use((f"{self.fc1}.weight", f"{self.fc1}.bias")))
        events += self.tensor.column(phase, self.fc1, self.width * self.gates, normed=bool(self.norm))
        events += self.tensor.kernels.moving(activation(self.args), phase, self.name, self.width)
        events.append(Use((f"{self.fc2}.weight", f"{self.fc2}.bias")))
        return [*events, *self.tensor.row(phase, self.fc2, self.width)]

    def backward(self) -> list[Event]:
        """Without a norm of its own the input's gradient is added to that of another block."""
        events: list[Event] = [Ready((f"{self.fc2}.bias",)), *self.tensor.row_back(self.fc2, self.width)]
        events += self.tensor.kernels.moving(f"{activation(self.args)}_backward", "backward", self.name, self.width)
        events.append(Ready((f"{self.fc2}.weight", f"{self.fc1}.bias")))
        events += self.tensor.column_back(self.fc1, self.width * self.gates)
        if not self.norm:
            events += self.tensor.residual("backward", self.fc1)
        events.append(Ready((f"{self.fc1}.weight",)))
        if self.norm:
            events += [*self.tensor.norm_back(self.norm), *ready(self.norm, self.args)]
        return events


def activation(args: WorkloadArgs) -> str:
    """The operator between the two products of an MLP."""
    return "gated_activation" if args.swiglu else "activation"
