"""Describes multi-head latent attention: queries, keys and values go through narrow projections that are split, too.

The projections are those of Megatron-core's own layers; with Transformer Engine the narrow ones are held in full by
every tensor rank, and their gathers fall away.
"""

from workloads.dialects.framework.layers import Parameter, norm, ready, use
from workloads.dialects.framework.tensor import TensorParallel
from workloads.job.parameters import WorkloadArgs
from workloads.rows.traced_op import SIZES, Event, Ready, Use


class LatentAttention:
    """The attention of DeepSeek-V2 and V3. Without a q_lora_rank of 1 or more queries have one whole projection."""

    def __init__(self, args: WorkloadArgs, tensor: TensorParallel, layer: str) -> None:
        self.args = args
        self.tensor = tensor
        self.norm = f"{layer}.input_layernorm"
        self.name = f"{layer}.self_attention"
        self.narrow = args.q_lora_rank > 0
        self.query = args.framework_heads * (args.qk_nope_dim + args.qk_rope_dim) // tensor.size
        self.value = args.framework_heads * args.v_head_dim // tensor.size
        self.key_value = args.framework_heads * (args.qk_nope_dim + args.v_head_dim) // tensor.size
        self.down = args.kv_lora_rank + args.qk_rope_dim

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
        events: list[Event] = [*use(self.norm, args)]
        if self.narrow:
            events += self._down(phase, "q_down_proj", args.q_lora_rank)
        events += self._down(phase, "kv_down_proj", self.down)
        if self.narrow:
            events += [*self._norm("q"), *self._norm("kv"), *self._up(phase, "q_up_proj", args.q_lora_rank)]
        else:
            events += [*self._norm("kv"), *self._up(phase, "q_proj", args.hidden_size)]
        events += self._up(phase, "kv_up_proj", args.kv_lora_rank)
        events.append(Use((self._weight("proj"), f"{self.name}.linear_proj.bias")))
        return [*events, *tensor.row(phase, f"{self.name}.linear_proj")]

    def backward(self) -> list[Event]:
        args, tensor = self.args, self.tensor
        events: list[Event] = [Ready((f"{self.name}.linear_proj.bias",)), *tensor.row_back(f"{self.name}.linear_proj")]
        events += [Ready((self._weight("proj"),)), *self._up_back("kv_up_proj", args.kv_lora_rank)]
        if self.narrow:
            events += [*self._up_back("q_up_proj", args.q_lora_rank), *self._norm_back("kv"), *self._norm_back("q")]
        else:
            events += [*self._up_back("q_proj", args.hidden_size), *self._norm_back("kv")]
        events += self._down_back("kv_down_proj", args.kv_lora_rank)
        if self.narrow:
            events += self._down_back("q_down_proj", args.q_lora_rank)
        return [*events, *ready(self.norm, args)]

    def _weight(self, projection: str) -> str:
        return f"{self.name}.linear_{projection}.weight"

    def _norm(self, which: str) -> list[Event]:
        return use(f"{self.name}.{which}_layernorm", self.args) if self.args.qk_layernorm else []

    def _norm_back(self, which: str) -> list[Event]:
        return ready(f"{self.name}.{which}_layernorm", self.args) if self.args.qk_layernorm else []

    def _bytes(self, width: int) -> int:
        return SIZES["bfloat16"] * self.tensor.tokens * width

    def _down(self, phase: str, projection: str, width: int) -> list[Event]:
        """A narrow projection: its output is gathered over the tensor ranks."""
        name = f"{self.name}.linear_{projection}"
        events: list[Event] = [Use((f"{name}.weight",)), *self.tensor.column(phase, name)]
        if self.tensor.size > 1:
            events.append(self.tensor.gather(phase, self.name, self._bytes(width)))
        return events

    def _down_back(self, projection: str, width: int) -> list[Event]:
        """The gradients of the slices of the sequence that went on are gathered first."""
        name = f"{self.name}.linear_{projection}"
        events: list[Event] = []
        if self.tensor.split:
            events.append(self.tensor.gather("backward", self.name, self._bytes(width)))
        return [*events, *self.tensor.column_back(name), Ready((f"{name}.weight",))]

    def _up(self, phase: str, projection: str, width: int) -> list[Event]:
        name = f"{self.name}.linear_{projection}"
        gathered = [self.tensor.gather(phase, name, self._bytes(width))] if self.tensor.split else []
        return [Use((f"{name}.weight",)), *gathered]

    def _up_back(self, projection: str, width: int) -> list[Event]:
        name, size = f"{self.name}.linear_{projection}", self._bytes(width)
        events: list[Event] = []
        if self.tensor.split:
            events = [self.tensor.gather("backward", name, size), self.tensor.scatter("backward", name, size)]
        elif self.tensor.size > 1:
            events = [self.tensor.reduce("backward", name, size)]
        return [*events, Ready((f"{name}.weight",))]
