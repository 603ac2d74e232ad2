"""Layers of a tensor-parallel transformer as data: names, full sizes, and the part of one rank.

The communication of such a layer is defined by a dialect, see `dialects`.
"""

from workloads.dialects.model import MockedModel, MockedParam


class ColumnParallelLinear(MockedModel):
    """Weight (input_size, output_size / tp): each rank computes a slice of the output."""

    def __init__(self, input_size: int, output_size: int, tp: int, *, name: str, bias: bool = False) -> None:
        self.name = name
        self.input_size = input_size
        self.output_size_per_partition = output_size // tp
        self.weight = MockedParam((input_size, self.output_size_per_partition), name=name)
        if bias:
            self.bias = MockedParam((self.output_size_per_partition,), name=f"{name}.bias")


class RowParallelLinear(MockedModel):
    """Weight (input_size / tp, output_size): each rank computes a partial sum of the whole output."""

    def __init__(self, input_size: int, output_size: int, tp: int, *, name: str, bias: bool = False) -> None:
        self.name = name
        self.input_size_per_partition = input_size // tp
        self.output_size = output_size
        self.weight = MockedParam((self.input_size_per_partition, output_size), name=name)
        if bias:
            self.bias = MockedParam((output_size,), name=f"{name}.bias")


class VocabParallelEmbedding(MockedModel):
    """Word vectors divided over tp ranks, and learned positions that each rank holds in full.

    word_copies: how many times the dialect counts the word vectors.
    """

    def __init__(self, vocab_size: int, positions: int, hidden_size: int, tp: int, *, word_copies: int = 1) -> None:
        self.name = "embedding_layer"
        self.word = MockedParam((word_copies * (vocab_size // tp), hidden_size), name="word_embeddings")
        self.position = MockedParam((positions, hidden_size), name="position_embeddings")


class LayerNorm(MockedModel):
    """Scale and shift: 2 * size elements."""

    def __init__(self, size: int, *, name: str = "fused") -> None:
        self.name = name
        self.weight = MockedParam((size,), name=f"{name}.weight")
        self.bias = MockedParam((size,), name=f"{name}.bias")


class Experts(MockedModel):
    """The experts of one rank: `matrices` weights of shape (hidden_size, ffn_size * num_experts / ep / tp) in total."""

    def __init__(
        self, hidden_size: int, ffn_size: int, num_experts: int, *, ep: int, tp: int, matrices: int, name: str
    ) -> None:
        self.name = name
        width = ffn_size * num_experts // ep // tp
        self.weights = [MockedParam((hidden_size, width), name=f"{name}.{index}") for index in range(matrices)]
