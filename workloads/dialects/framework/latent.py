"""Describes multi-head latent attention: queries, keys and values go through narrow projections that are split, too.

The projections are those of Megatron-core's own layers; with Transformer Engine the narrow ones are held in full by
every tensor rank, and their gathers fall away.
"""

from workloads.dialects.framework import quantised
from workloads.dialects.framework.context import CoreAttention
from workloads.dialects.framework.layers import Parameter, norm, ready, use
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.tensor import TensorParallel
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import SIZES, Event, Ready, Use


class LatentAttention:
    """The attention of DeepSeek-V2 and V3. Without a q_lora_rank of 1 or more queries have one whole projection."""

    def __init__(
        self, args: WorkloadArgs, place: RankPlacement, tensor: TensorParallel, layer: str, number: int = 0
    ) -> None:
        self.args = args
        self.tensor = tensor
        self.norm = f"{layer}.input_layernorm"
        self.name = f"{layer}.self_attention"
        self.narrow = args.q_lora_rank > 0
        self.query = args.framework_heads * (args.qk_nope_dim + args.qk_rope_dim) // tensor.size
        self.value = args.framework_heads * args.v_head_dim // tensor.size
        self.key_value = args.framework_heads * (args.qk_nope_dim + args.v_head_dim) // tensor.size
        self.down = args.kv_lora_rank + args.qk_rope_dim
        self.heads = args.framework_heads // tensor.size
        widths = (args.qk_nope_dim + args.qk_rope_dim, args.v_head_dim)
        name = f"{self.name}.core_attention"
        self.core = CoreAttention(args, place, tensor.kernels, name, (self.heads, self.heads), widths, number)

    def parameters(self) -> list[Parameter]:
        args, hidden, tp = self.args, self.args.hidden_size, self.tensor.size
        found = [*norm(self.norm, hidden, args), Parameter(self._weight("proj"), hidden * self.value)]
        if args.add_bias_linear:
            found.append(Parameter(f"{self.name}.linear_proj.bias", hidden, reduced=True))
        if self.narrow:
            found.append(Parameter(self._weight("q_down_proj"), hidden * (args.q_lora_rank // tp)))
            found.append(Parameter(self._weight("q_up_proj"), args.q_lora_rank * self.query))
        else:
            found.append(Parameter(self._weight("q_proj"), hidden * self.query))
        found.append(Parameter(self._weight("kv_down_proj"), hidden * (self.down // tp)))
        found.append(Parameter(self._weight("kv_up_proj"), args.kv_lora_rank * self.key_value))
        if args.qk_layernorm:
            if self.narrow:
                found += norm(f"{self.name}.q_layernorm", args.q_lora_rank, args, always=True)
            found += norm(f"{self.name}.kv_layernorm", args.kv_lora_rank, args)
        return found

    def forward(self, phase: str) -> list[Event]:
        args, tensor = self.args, self.tensor
        events: list[Event] = [*use(self.norm, args), *tensor.norm(phase, self.norm)]
        if self.narrow:
            events += self._down(phase, "q_down_proj", args.q_lora_rank)
        events += self._down(phase, "kv_down_proj", self.down)
        if self.narrow:
            events += [*self._norm(phase, "q"), *self._norm(phase, "kv")]
            events += self._up(phase, "q_up_proj", args.q_lora_rank, self.query)
        else:
            events += [*self._norm(phase, "kv"), *self._up(phase, "q_proj", args.hidden_size, self.query)]
        events += self._up(phase, "kv_up_proj", args.kv_lora_rank, self.key_value)
        kernels, rope = tensor.kernels, args.qk_rope_dim
        for heads in (self.heads, 1):
            events += kernels.moving("rope", phase, self.name, heads * rope)
        # Queries and keys are put together of their parts with and without positions.
        events += kernels.moving("copy", phase, self.name, self.query) * 2
        events += self.core.forward(phase)
        events.append(Use((self._weight("proj"), f"{self.name}.linear_proj.bias")))
        return [*events, *tensor.row(phase, f"{self.name}.linear_proj", self.value)]

    def backward(self) -> list[Event]:
        args, tensor = self.args, self.tensor
        projection = f"{self.name}.linear_proj"
        events: list[Event] = [Ready((f"{projection}.bias",)), *tensor.row_back(projection, self.value)]
        events.append(Ready((self._weight("proj"),)))
        events += self.core.backward()
        for heads in (1, self.heads):
            events += tensor.kernels.moving("rope_backward", "backward", self.name, heads * args.qk_rope_dim)
        # The gradients of parts are put together, of keys and values and of queries.
        for width in (self.key_value, self.query):
            events += tensor.kernels.moving("copy", "backward", self.name, width)
        events += self._up_back("kv_up_proj", args.kv_lora_rank, self.key_value)
        if self.narrow:
            events += self._up_back("q_up_proj", args.q_lora_rank, self.query)
            events += [*self._norm_back("kv"), *self._norm_back("q")]
        else:
            events += [*self._up_back("q_proj", args.hidden_size, self.query), *self._norm_back("kv")]
        events += self._down_back("kv_down_proj", self.down, last=not self.narrow)
        if self.narrow:
            events += self._down_back("q_down_proj", args.q_lora_rank, last=True)
        return [*events, *tensor.norm_back(self.norm), *ready(self.norm, args)]

    def _weight(self, projection: str) -> str:
        return f"{self.name}.linear_{projection}.weight"

    def _norm(self, phase: str, which: str) -> list[Event]:
        if not self.args.qk_layernorm:
            return []
        name, side = f"{self.name}.{which}_layernorm", (self.tensor.kept, self._narrow(which))
        return [*use(name, self.args), *quantised.norm(self.tensor.kernels, phase, name, side)]

    def _norm_back(self, which: str) -> list[Event]:
        if not self.args.qk_layernorm:
            return []
        name, tensor = f"{self.name}.{which}_layernorm", self.tensor
        kernel = tensor.kernels.moving("norm_backward", "backward", name, self._narrow(which), tensor.kept)
        return [*kernel, *ready(name, self.args)]

    def _narrow(self, which: str) -> int:
        return self.args.q_lora_rank if which == "q" else self.args.kv_lora_rank

    def _bytes(self, width: int) -> int:
        return SIZES["bfloat16"] * self.tensor.tokens * width

    def _down(self, phase: str, projection: str, width: int) -> list[Event]:
        """A narrow projection: its output is gathered over the tensor ranks."""
        name, tensor = f"{self.name}.linear_{projection}", self.tensor
        events: list[Event] = [Use((f"{name}.weight",)), *tensor.column(phase, name, width // tensor.size)]
        if tensor.size > 1:
            events.append(tensor.gather(phase, self.name, self._bytes(width)))
        return events

    def _down_back(self, projection: str, width: int, *, last: bool) -> list[Event]:
        """The gradients of the slices of the sequence that went on are gathered first; positions were not split.

        last: the gradient of the input is added to that of the projection before, which had the same.
        """
        name, tensor = f"{self.name}.linear_{projection}", self.tensor
        events: list[Event] = []
        if tensor.split:
            sliced = self.args.kv_lora_rank if width == self.down else width
            events.append(tensor.gather("backward", self.name, self._bytes(sliced)))
        events += tensor.column_back(name, width // tensor.size)
        return [*events, *(tensor.residual("backward", name) if last else []), Ready((f"{name}.weight",))]

    def _up(self, phase: str, projection: str, width: int, outer: int) -> list[Event]:
        name = f"{self.name}.linear_{projection}"
        return [
            Use((f"{name}.weight",)),
            *self.tensor.column(phase, name, outer, width, normed=self.args.qk_layernorm and projection != "q_proj"),
        ]

    def _up_back(self, projection: str, width: int, outer: int) -> list[Event]:
        name = f"{self.name}.linear_{projection}"
        return [*self.tensor.column_back(name, outer, width), Ready((f"{name}.weight",))]
