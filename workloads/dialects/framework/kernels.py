"""States the kernels that a decoder's modules run: products, attention, and what the memory's rate bounds.

An elementwise chain that frameworks fuse (norm, rotary positions, activation, residual sum, loss) is one kernel.
Bytes are those of each operand once; a gradient that is added to a 32-bit one reads and writes that, too.
"""

from workloads.compute.operators import stated
from workloads.job.parameters import DECODE, FP8_RECIPES, TRAINING, WorkloadArgs
from workloads.rows.calls import BFLOAT16, FLOAT8, FLOAT32, NOBODY, SIZES, Call
from workloads.rows.ops import CommType

SINGLE = frozenset({"loss", "loss_backward", "routing", "routing_backward"})
HEAD, ROUTER = "output_layer", ".router"
HEADS = (HEAD, "lm_head")
Side = tuple[int, int]
"""Rows and columns of an operand of a product."""


class Kernels:
    """Makes the rows of one rank, none unless the job asks for computation.

    tokens: of a micro-batch on this rank; context: of a sequence that a decoding step's attention sees.
    """

    def __init__(self, args: WorkloadArgs, tokens: int, dtype: str = BFLOAT16, context: int = 0) -> None:
        self.context = context
        self.wanted = args.computes
        self.args, self.tokens, self.dtype = args, tokens, dtype
        self.dropout = args.hidden_dropout > 0 and args.phase == TRAINING
        fused = args.frame == "Megatron"
        self.accumulated = 2 * SIZES[FLOAT32 if args.grad_reduce_in_fp32 else BFLOAT16] if fused else 0
        self.float8 = args.phase == TRAINING and args.fp8_recipe != FP8_RECIPES[0]

    def is_low(self, module: str) -> bool:
        """Whether the products of a linear layer are in FP8."""
        return self.float8 and module not in HEADS and not module.endswith(ROUTER)

    def made(
        self, op: str, sizes: tuple[int, ...], phase: str, module: str, *, more: int = 0, dtype: str = ""
    ) -> list[Call]:
        """One kernel. more: bytes that it moves beside its operands; dtype: of these, by default the model's."""
        dtype = dtype or self.dtype
        if not self.wanted or 0 in sizes:
            return []
        text, moved = stated(op, *sizes, element=SIZES[dtype], more=more)
        return [Call(CommType.computation, "", NOBODY, dtype, moved, phase, module, kernel=text)]

    def product(self, phase: str, module: str, inner: int, outer: int, tokens: int | None = None) -> list[Call]:
        """A linear layer forward. tokens: how many it gets, by default all of the micro-batch."""
        return self._multiplied("gemm", (self._of(tokens), inner, outer), phase, module)

    def input_gradient(self, module: str, inner: int, outer: int, tokens: int | None = None) -> list[Call]:
        """The gradient of a linear layer's input."""
        return self._multiplied("gemm_dgrad", (self._of(tokens), outer, inner), "backward", module)

    def weight_gradient(self, module: str, inner: int, outer: int, tokens: int | None = None) -> list[Call]:
        """The gradient of its weight, added to those of the micro-batches before."""
        more = self.accumulated * inner * outer
        return self._multiplied("gemm_wgrad", (outer, self._of(tokens), inner), "backward", module, more)

    def grouped(
        self, op: str, phase: str, module: str, experts: int, inner: int, outer: int, tokens: int
    ) -> list[Call]:
        """The products of several experts in one kernel; tokens: of each."""
        gradient = op == "experts_wgrad"
        sizes = {"experts": (tokens, inner, outer), "experts_dgrad": (tokens, outer, inner),
                 "experts_wgrad": (outer, tokens, inner)}[op]  # fmt: skip
        more = self.accumulated * experts * inner * outer if gradient else 0
        return self._multiplied(op, (experts, *sizes), phase, module, more)

    def _multiplied(self, op: str, sizes: tuple[int, ...], phase: str, module: str, more: int = 0) -> list[Call]:
        """A product, or several, whose result has 16 bits."""
        if not self.is_low(module):
            return self.made(op, sizes, phase, module, more=more)
        experts, (m, _, n) = sizes[0] if len(sizes) > 3 else 1, sizes[-3:]
        more += (SIZES[BFLOAT16] - SIZES[FLOAT8]) * experts * m * n
        return self.made(op, sizes, phase, module, more=more, dtype=FLOAT8)

    def turned(self, phase: str, module: str, *sides: Side) -> list[Call]:
        """Copies of operands in FP8 in the other order."""
        return [call for side in sides for call in self.made("transpose", side, phase, module, dtype=FLOAT8)]

    def moving(self, op: str, phase: str, module: str, width: int, tokens: int | None = None) -> list[Call]:
        """A kernel that reads and writes (tokens, width); probabilities have 32 bits."""
        dtype = FLOAT32 if op in SINGLE else ""
        return self.made(op, (self._of(tokens), width), phase, module, dtype=dtype)

    def attention(
        self, phase: str, module: str, heads: tuple[int, int], widths: tuple[int, int], *, times: int = 1,
        window: int = 0,
    ) -> list[Call]:  # fmt: skip
        """Fused causal attention of a rank's heads, forward; in decode, of one token with all before it.

        heads: of queries, and of keys and values; widths: of a head's query and key, and of its value; times: sequences
        are as long as this many ranks' together; window: tokens that a token attends to, 0: all before it.
        """
        batch = self.args.micro_batch
        if self.args.phase == DECODE:
            context = min(self.context, window or self.context)
            return self.made("attention_decode", (batch, context, *heads, *widths), phase, module)
        return self._attended("", phase, module, (batch, self.sequence * times, *heads, *widths), window)

    def attention_back(
        self, module: str, heads: tuple[int, int], widths: tuple[int, int], *, times: int = 1, window: int = 0
    ) -> list[Call]:
        """Its backward pass."""
        sizes = (self.args.micro_batch, self.sequence * times, *heads, *widths)
        return self._attended("_backward", "backward", module, sizes, window)

    def _attended(self, suffix: str, phase: str, module: str, sizes: tuple[int, ...], window: int) -> list[Call]:
        if 0 < window < sizes[1]:
            return self.made(f"attention_window{suffix}", (*sizes, window), phase, module)
        return self.made(f"attention{suffix}", (*sizes, 1), phase, module)

    def dropped(self, op: str, phase: str, module: str, tokens: int) -> list[Call]:
        """Dropout of the hidden state, or its backward pass, if the job has any."""
        return self.moving(op, phase, module, self.args.hidden_size, tokens) if self.dropout else []

    @property
    def sequence(self) -> int:
        """Tokens of a sequence that attention sees."""
        return self.tokens // self.args.micro_batch

    def _of(self, tokens: int | None) -> int:
        return self.tokens if tokens is None else tokens
