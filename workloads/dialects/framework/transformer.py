"""Puts a transformer layer together: attention of either kind, then a dense MLP or experts."""

from workloads.dialects.framework.experts import MoeMlp
from workloads.dialects.framework.latent import LatentAttention
from workloads.dialects.framework.layers import Attention, Mlp, Parameter
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.tensor import TensorParallel
from workloads.job.parameters import WorkloadArgs
from workloads.rows.calls import Event


class GptLayer:
    """Attention, then the MLP; backwards the other way round."""

    def __init__(self, name: str, attention: Attention | LatentAttention, mlp: Mlp | MoeMlp) -> None:
        self.name = name
        self.attention = attention
        self.mlp = mlp

    def parameters(self) -> list[Parameter]:
        return [*self.attention.parameters(), *self.mlp.parameters()]

    def forward(self, phase: str) -> list[Event]:
        tensor = self.attention.tensor
        sums = tensor.kernels.dropped("dropout", phase, self.name, tensor.kept) + tensor.residual(phase, self.name)
        return [*self.attention.forward(phase), *sums, *self.mlp.forward(phase), *sums]

    def backward(self) -> list[Event]:
        tensor = self.attention.tensor
        dropped = tensor.kernels.dropped("dropout_backward", "backward", self.name, tensor.kept)
        return [*dropped, *self.mlp.backward(), *dropped, *self.attention.backward()]

    @property
    def kind(self) -> tuple[type[Mlp | MoeMlp], int]:
        """Layers of one kind send and compute the same."""
        return type(self.mlp), self.attention.core.window


def layer(args: WorkloadArgs, place: RankPlacement, tensor: TensorParallel, number: int) -> GptLayer:
    """Layer `number` of the model, counted from 0; the first moe_first_dense_layers have no experts."""
    name = f"decoder.layers.{number}"
    attention: Attention | LatentAttention
    if args.multi_latent_attention:
        attention = LatentAttention(args, place, tensor, name, number)
    else:
        attention = Attention(args, place, tensor, name, number)
    if args.moe_enable and number >= args.moe_first_dense_layers:
        return GptLayer(name, attention, MoeMlp(args, place, tensor, name))
    return GptLayer(name, attention, Mlp(args, tensor, f"{name}.mlp", f"{name}.pre_mlp_layernorm", args.ffn_size))
