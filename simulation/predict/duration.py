"""Times the operations of a rank on a machine, in microseconds, by class."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from simulation.analytical.nccl_tuning import ONE_HOP_US
from simulation.analytical.nvlink_times import MEASURED_AS, nvlink_us, place_in_table
from simulation.predict import kernels
from simulation.predict.attention import over_tables
from simulation.predict.machine import MEMORY_SHARE, NIC_SHARE, Machine
from simulation.predict.operations import (
    ALL_REDUCE,
    ALL_TO_ALL,
    ATTENTION,
    CP,
    EP,
    HALF,
    MEMORY,
    PERMUTATION,
    PRODUCTS,
    QUANTISATION,
    SEND,
    TP,
    Attention,
    Collective,
    Decoding,
    Operation,
    Part,
    Product,
    Traffic,
)
from workloads.job.training_job import ELEMENTWISE, TrainingJob

LAUNCH_US = 20.6
"""Between two kernels that a host starts one by one from Python; a part is never shorter than its kernels' launches.
The median of sums of at most 1 KiB over two H100, H200 or B200 by vLLM without a graph: aiconfigurator-core 0.12.0,
systems/data/*/comm/vllm/*/custom_allreduce_perf, vllm_eager.
"""
CAST_BYTES = 3
"""For each element of a product's input in FP8 or FP4: two bytes read, one written."""
DYNAMIC_CAST_BYTES = 5
"""The same by torchao's dynamic scaling, which reads the input once more for its largest element; weights, too."""
BY_ROWS = 1.37
"""How many times longer products take whose operands have a scale for each row (torch._scaled_mm; torchao's rowwise)
than those of one scale: of our two H200 rows, 390 ms by tensors and 456 by rows, of which casts explain 12. So the H100
should take 18 ms more for eight layers, it took 17; torchao's Llama-3 8B 187, it took 145 (test_measured.py).
"""
TILE = 128
"""Queries that a kernel of attention has at once, and their windows' union (FlashAttention-2, arXiv:2307.08691, section
3.3): with it windows of 128 and 8,192 tokens take what vLLM's were measured to, within a third
(test_kernels_held.py).
"""
STREAMS = 4
"""Products of experts that run beside one another (num_streams of TransformerEngine's multi_streams.h)."""
EXPOSED = 0.3
"""Share of a group's communication that stays visible where the framework overlaps it with compute: of 0.15, 0.3, 0.45
and 0.6 the best for either half of Megatron-Bridge's layouts, dense or with experts (test_measured.py).
"""
MEASURED_GPUS = 8
SIMULATED, COST_MODEL = "simulated", "cost model"
"""Sources of collectives that no table has: flows over a network's links; bytes over rates."""
_SAME_AS = {"B300": "B200", "GB300": "GB200"}  # whose NVLink times were not measured


class Times(dict[str, float]):
    """Microseconds by class."""

    def add(self, other: Mapping[str, float], count: float = 1.0) -> None:
        """Add `count` times the other's."""
        for key, us in other.items():
            self[key] = self.get(key, 0.0) + count * us


class Sent(NamedTuple):
    """A collective or message: its ranks and how far they are apart, bytes of the buffer, us of one, its source."""

    op: str
    ranks: int
    stride: int
    bytes: float
    us: float
    source: str


class Links(Protocol):
    """The model that times collectives between servers: simulation.predict.network."""

    def machine_on(self, machine: Machine) -> Machine:
        """The machine with these servers and NICs."""

    def collective_us(self, op: str, ranks: int, stride: int, size: float, gpus: int) -> float | None:
        """A collective of `size` bytes in all its groups; None: its time follows from rates."""

    def source(self, op: str, ranks: int, stride: int, size: float) -> str:
        """Where the time of so many bytes (`size`) is from."""


class Stopwatch:
    """Times operations of one job on one machine; is_engine: as an inference engine runs them."""

    is_engine = False

    def __init__(self, job: TrainingJob, machine: Machine, network: Links | None = None) -> None:
        self.job, self.machine, self._network = job, machine, network
        self.sent: dict[Sent, None] = {}
        self.precision, self.shortest_us = job.precision, kernels.shortest_us(machine.gpu)
        self._bytes_us = machine.memory_GBps * 1e3 * MEMORY_SHARE

    def rested(self) -> "Stopwatch":
        """The watch of the machine after a wait."""
        return Stopwatch(self.job, self.machine.rested(), self._network)

    def part(self, part: Part) -> Times:
        """Microseconds of a part by class, forward and backward; selective recomputation repeats shares of forward."""
        forward = self._sequence(part.forward)
        backward = self._sequence(part.backward)
        if self.job.recompute.startswith("selective"):
            again = _AGAIN_FSDP if self.job.of_torch else _AGAIN
            again = _AGAIN_ELEMENTWISE if self.job.recompute == ELEMENTWISE else again
            backward.add({key: us * again.get(key, 0.0) for key, us in forward.items()})
        forward.add(backward)
        return forward

    def _sequence(self, operations: Sequence[Operation]) -> Times:
        times = Times()
        for operation in operations:
            times.add(dict([self.timed(operation)]))
        started = sum(each.kernels if isinstance(each, Traffic) else 1 for each in operations)
        idle = LAUNCH_US * started - sum(times.values())
        if idle > 0:
            times["host"] = idle
        return times

    def timed(self, operation: Operation) -> tuple[str, float]:
        """The class of an operation, and its microseconds."""
        factors = self.machine.factors
        if isinstance(operation, Product):
            return operation.part, self._product(operation)
        if isinstance(operation, Attention):
            us = self._attention(operation) * factors.attention * self._over_tables(operation)
            return ATTENTION, max(us, self.shortest_us)
        if isinstance(operation, Decoding):
            return ATTENTION, max(kernels.decode_us(self.machine.gpu, *operation), self.shortest_us)
        if isinstance(operation, Traffic):
            us = max(operation.bytes / self._bytes_us, self.shortest_us * operation.kernels)
            return operation.part, us * (factors.dispatch if operation.part == PERMUTATION else 1.0)
        assert isinstance(operation, Collective)
        us = self._collective(operation)
        if operation.group == EP:
            us *= factors.dispatch
        return operation.group, us * (EXPOSED if self.job.overlap else 1.0)

    def _over_tables(self, at: Attention) -> float:
        """A pass of training over the tables' forward pass."""
        return over_tables(self.machine.gpu, at, flash_2=self.job.of_torch and not self.job.cudnn)

    def _attention(self, at: Attention) -> float:
        """A forward pass of the mean layer; one with a window takes what tiles of queries take that see it, and moves
        queries and results.
        """
        whole = kernels.attention_us(self.machine.gpu, at.seq, at.heads, at.qk, at.v)
        seen = at.window + TILE
        if at.full == 1 or seen >= at.seq:
            return whole
        # Blocks of as many queries as they see keys, each as a causal sequence with as many pairs.
        blocks = at.heads * (at.seq - seen / 2) / seen
        us = kernels.attention_us(self.machine.gpu, 2**0.5 * seen, blocks, at.qk, at.v)
        us += self.moved_us(HALF * at.seq * at.heads * (at.qk + at.v))
        return at.full * whole + (1 - at.full) * min(us, whole)

    def _product(self, each: Product) -> float:
        low = self.precision != "bf16" and not each.wide
        dtype = self.precision if low else "bf16"
        beside = min(STREAMS, each.times)
        us = kernels.product_us(self.machine.gpu, dtype, each.m * beside, each.n, each.k) / beside
        if low and self.job.by_rows:
            us *= BY_ROWS
        us = us * self.machine.factors.products[dtype] + each.master / each.times / self._bytes_us
        us = max(us, self.shortest_us) * each.times
        return us + (self._cast_bytes(each) / self._bytes_us if low and not each.quantised else 0.0)

    def _cast_bytes(self, each: Product) -> int:
        """Bytes that move where operands become FP8 or FP4, of jobs without rows for it."""
        if not self.job.of_torch:
            return CAST_BYTES * each.times * each.m * each.k
        # The gradient of the output is cast once for both products of the backward pass.
        cast = each.n * each.k + (0 if each.of_weight else each.m * each.k)
        return DYNAMIC_CAST_BYTES * each.times * cast

    def _collective(self, each: Collective) -> float:
        job = self.job
        ranks, stride = {TP: (job.tp, 1), CP: (job.cp, job.tp), EP: (job.ep, 1)}[each.group]
        if each.op == SEND:
            return self.send_us(each.bytes, stride)
        return self.collective_us(each.op, ranks, stride, each.bytes)

    def collective_us(self, op: str, ranks: int, stride: int, size: float) -> float:
        """A collective of `size` bytes among `ranks` that are `stride` apart."""
        if ranks <= 1 or size < 1:
            return 0.0
        us, source = self.timed_collective(op, ranks, stride, size)
        self.sent[Sent(op, ranks, stride, size, us, source)] = None
        return us

    def timed_collective(self, op: str, ranks: int, stride: int, size: float) -> tuple[float, str]:
        """Its microseconds, and where they are from."""
        if self._network and (us := self._network.collective_us(op, ranks, stride, size, self.job.gpus)) is not None:
            return us, self._network.source(op, ranks, stride, size)
        domain = self.machine.nvlink_domain
        if ranks * stride <= domain:
            return self._inside(op, ranks, size)
        inside = max(1, domain // stride)
        rate = self.machine.nic_GBps * 1e3 * NIC_SHARE
        if op == ALL_TO_ALL:
            return size * (ranks - inside) / ranks / rate + ONE_HOP_US, COST_MODEL
        turns = 2 if op == ALL_REDUCE else 1
        between = turns * size * (1 - 1 / ranks) / inside / rate
        within, source = self._inside(op, inside, size) if inside > 1 else (0.0, COST_MODEL)
        return max(between, within) + ONE_HOP_US, COST_MODEL if between >= within else source

    @property
    def is_nvlink_measured(self) -> bool:
        """Whether collectives of the GPU's servers are in the tables."""
        return _SAME_AS.get(self.machine.gpu, self.machine.gpu) in MEASURED_AS

    def _inside(self, op: str, ranks: int, size: float) -> tuple[float, str]:
        gpu = _SAME_AS.get(self.machine.gpu, self.machine.gpu)
        measured = min(ranks, MEASURED_GPUS)
        if not self.is_nvlink_measured:
            turns = 2 if op == ALL_REDUCE else 1
            us = turns * size * (1 - 1 / ranks) / self.machine.nvlink_GBps / 1e3 + ONE_HOP_US
            return us, COST_MODEL
        found = nvlink_us(gpu, op, measured, int(size), self.machine.nvlink_GBps)
        assert found is not None
        us = found * (1 - 1 / ranks) / (1 - 1 / measured)
        if gpu != self.machine.gpu or MEASURED_AS[gpu] != gpu:
            return us, kernels.EXTRAPOLATED
        is_measured, is_within = place_in_table(gpu, op, ranks, int(size))
        return us, kernels.table_source(is_measured=is_measured, is_within=is_within)

    def send_us(self, size: float, stride: int) -> float:
        """A message of `size` bytes between two ranks `stride` apart."""
        if stride < self.machine.nvlink_domain:
            # Of two ranks' all-to-all, which are the same calls, each keeps one half and sends the other.
            us, source = self._inside(ALL_TO_ALL, 2, 2 * size)
        else:
            us, source = size / self.machine.nic_GBps / NIC_SHARE / 1e3 + ONE_HOP_US / 2, COST_MODEL
        self.sent[Sent(SEND, 2, stride, size, us, source)] = None
        return us

    def moved_us(self, size: float) -> float:
        """`size` bytes through the memory."""
        return size / self._bytes_us


_AGAIN_ELEMENTWISE = {MEMORY: 1.0, CP: 1.0}
_AGAIN = {ATTENTION: 1.0}
_AGAIN_FSDP = {PRODUCTS: 0.5, QUANTISATION: 0.5, MEMORY: 1.0}
"""Shares of the forward pass that selective recomputation repeats: Megatron-LM's attention; torchtitan's "op" every
second product and the operations between products. Elementwise: these and the exchange of sequences alone, as our
trainer's.
"""
