"""Puts an iteration together: stages and their schedule, what data parallelism sends, the optimizer.

1F1B takes (m - 1) of its slowest stage and one of every stage; interleaved, the others' share is divided by the chunks
(Narayanan et al., arXiv:2104.04473, section 2.2).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from simulation.predict import operations
from simulation.predict.duration import EXPOSED, Links, Sent, Stopwatch, Times
from simulation.predict.machine import Machine
from simulation.predict.pieces import PieceTimes, flops_of_pieces
from workloads.compute.operators import OPERATORS
from workloads.job import memory
from workloads.job.training_job import TrainingJob
from workloads.job.weights import StageKind, StageWeights, kinds_of, stage_weights
from workloads.rows.calls import FLOAT32, SIZES

STEP = ("grad_norm", "grad_scale", "adam", "cast")
"""Operators of the optimizer's step, in 32 bits, as the dialect's rows have them."""
COPIED_BYTES = 2 * 2 * operations.HALF + operations.HALF + 4
"""For each weight that FSDP2 divides: gathered ones are copied out of their buffer in both passes, its gradient into
one of float32, all between the products (torch.distributed.fsdp, _fsdp_collectives.py).
"""

BUCKET_BYTES = 25 * 2**20
"""Of gradients that torch's DistributedDataParallel sums at once (bucket_cap_mb)."""
BACKWARD_SHARE = 2 / 3
"""Of a micro-batch's time: two of three products."""
BESIDE = (operations.TP, operations.CP, operations.EP)
"""Groups of whose communication EXPOSED is visible where compute runs beside it."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Milliseconds of an iteration, those of its classes on the slowest stage and of the communication that compute
    hides there, of one micro-batch on each stage, and the memory of each; sent: what the ranks send, each once.
    """

    job: TrainingJob
    machine: Machine
    ms: float
    classes: Mapping[str, float]
    hidden: Mapping[str, float]
    stages_ms: tuple[float, ...]
    stages_memory: tuple[memory.Memory, ...]
    flops: float
    sent: tuple[Sent, ...]

    @property
    def memory(self) -> memory.Memory:
        """Of the fullest stage."""
        return max(self.stages_memory, key=lambda each: each.allocated)

    @property
    def most_joules(self) -> float:
        """Of an iteration, each GPU at its power limit."""
        return self.machine.power_W * self.job.gpus * self.ms / 1e3

    @property
    def tokens_per_second_and_gpu(self) -> float:
        return self.job.tokens_per_iteration / self.ms * 1e3 / self.job.gpus

    @property
    def mfu(self) -> float:
        """Model FLOPs (without recomputation) over the dense peak of the job's precision."""
        return self.flops / self.job.gpus / self.ms / 1e9 / self.machine.peak_tflops(self.job.precision)


def predict(
    job: TrainingJob, machine: Machine, network: Links | None = None, known: PieceTimes | None = None
) -> Prediction:
    """Predict one iteration; `network` is the description of what joins the servers.

    known: of other jobs on the same machine, without a network; it makes them cheap and changes nothing.

    Raises:
        KeyError: nothing was measured of this GPU in this precision.
    """
    machine = machine.servers_of(job.gpus_per_node) or machine
    machine = machine.limited(job.power_limit, job.memory_GBps)
    machine = network.machine_on(machine) if network else machine
    watch, known = Stopwatch(job, machine, network), known or PieceTimes()
    pieces = known.of(watch)
    watch.sent |= pieces.sent
    stages = _stages(job, pieces.times)
    slowest = max(range(job.pp), key=lambda stage: sum(stages[stage].values()))
    per_batch = sum(stages[slowest].values())
    of_stages = [sum(each.values()) for each in stages]
    rested = _stages(job, known.rested(watch)) if job.pp > 1 else stages
    held = stage_weights(job, slowest)
    bubble, sends = _pipeline(job, watch, [sum(each.values()) for each in rested])
    gradients = _data_parallel(job, watch, held, per_batch)
    classes = {key: us * job.micro_batches for key, us in stages[slowest].items()}
    hidden = {group: us * (1 / EXPOSED - 1) for group, us in classes.items() if group in BESIDE and job.overlap}
    classes |= {"bubble": bubble, "pp": sends.visible, "dp": gradients.visible}
    hidden |= {"pp": sends.hidden, "dp": gradients.hidden}
    classes["memory-bound"] = classes.get("memory-bound", 0.0) + _copied(job, watch, held)
    classes["optimizer"] = _optimizer(job, watch, held)
    return Prediction(
        job,
        machine,
        sum(classes.values()) / 1e3,
        _milliseconds(classes),
        _milliseconds(hidden),
        tuple(us / 1e3 for us in of_stages),
        tuple(memory.memory_of(job)),
        _model_flops(job, pieces.flops),
        tuple(watch.sent),
    )


def _milliseconds(classes: Mapping[str, float]) -> dict[str, float]:
    return {key: us / 1e3 for key, us in sorted(classes.items(), key=lambda each: -each[1]) if us}


def model_flops(job: TrainingJob) -> float:
    """FLOPs of an iteration over all GPUs: products three times, causal attention 3.5 times its forward pass."""
    return _model_flops(job, flops_of_pieces(job))


def _model_flops(job: TrainingJob, pieces: tuple[float, float, float]) -> float:
    counts = (job.leading_dense, job.layers - job.leading_dense, 1)
    whole = sum(flops * count for flops, count in zip(pieces, counts, strict=True))
    return whole * job.tp * job.cp * job.micro_batches * job.dp


def _stages(job: TrainingJob, pieces: tuple[Times, ...]) -> list[Times]:
    """Microseconds of one micro-batch on each stage, by class, of those of the model's pieces."""
    embedding, dense, expert, head = pieces
    alike: dict[StageKind, Times] = {}
    for kind in kinds_of(job):
        if kind in alike:
            continue
        times = alike[kind] = Times()
        times.add(dense, kind.dense)
        times.add(expert, kind.experts)
        if kind.is_first:
            times.add(embedding)
        if kind.is_last:
            times.add(head)
    return [alike[kind] for kind in kinds_of(job)]


class _Sent(NamedTuple):
    """Microseconds of communication that nothing hides, and that compute does."""

    visible: float
    hidden: float


def _pipeline(job: TrainingJob, watch: Stopwatch, stages: list[float]) -> tuple[float, _Sent]:
    """Microseconds that the slowest stage waits for the others to fill and empty, and of its messages.

    stages: the times of a micro-batch that a stage waited for.
    """
    if job.pp == 1:
        return 0.0, _Sent(0.0, 0.0)
    size = job.tokens * job.hidden * operations.HALF / job.split
    send = watch.send_us(size, job.tp * job.cp * job.dp)
    filling, steady = 2 * send * (job.pp - 1), 2 * send * job.micro_batches * job.vpp
    sent = _Sent(filling, steady) if job.overlap else _Sent(filling + steady, 0.0)
    return (sum(stages) - max(stages)) / job.vpp, sent


def _data_parallel(job: TrainingJob, watch: Stopwatch, held: StageWeights, per_batch: float) -> _Sent:
    """Microseconds of gradients and weights between replicas."""
    if job.replicated:
        return _buckets(job, watch, held, per_batch)
    sent = 0.0
    for weights, ranks, stride, shards in _replicas(job, held):
        copies, ranks = (max(1, ranks // shards), shards) if job.fsdp else (1, ranks)
        scatter = watch.collective_us(operations.REDUCE_SCATTER, ranks, stride, job.grad_bytes * weights)
        gather = watch.collective_us(operations.ALL_GATHER, ranks, stride, operations.HALF * weights)
        if job.fsdp:
            # Weights are gathered for the forward and the backward pass of each micro-batch.
            between = watch.collective_us(
                operations.ALL_REDUCE, copies, stride * ranks, job.grad_bytes * weights / ranks
            )
            sent += (2 * gather + scatter) * job.micro_batches + between
        else:
            sent += scatter + gather
    if not job.overlap:
        return _Sent(sent, 0.0)
    if job.fsdp:
        layers = max(1, job.layers // job.pp)
        visible = max(sent / layers, sent - per_batch * job.micro_batches * (1 - 1 / layers))
    else:
        # Buckets of layers: the last gradients and the first weights have nothing beside them.
        visible = max(sent / (2 * job.vpp), sent - per_batch)
    return _Sent(visible, sent - visible)


def _replicas(job: TrainingJob, held: StageWeights) -> tuple[tuple[float, int, int, int], ...]:
    """Weights of a rank, the ranks that hold the same ones, how far these are apart, and over how many FSDP divides
    them. Neighbours hold other experts, whatever tensor parallelism they have (parallel_state.py of Megatron-core).
    """
    return (held.shared, job.dp * job.cp, job.tp, job.fsdp), (held.experts, job.expert_dp, job.ep, job.expert_shards)


def _copied(job: TrainingJob, watch: Stopwatch, held: StageWeights) -> float:
    """Microseconds in which FSDP2 copies what it gathers and sums."""
    if not job.of_torch or job.replicated:
        return 0.0
    copied = sum(weights for weights, _, _, shards in _replicas(job, held) if shards > 1)
    return watch.moved_us(COPIED_BYTES * copied) * job.micro_batches


def _buckets(job: TrainingJob, watch: Stopwatch, held: StageWeights, per_batch: float) -> _Sent:
    """Microseconds of the sums of gradients, which follow the last micro-batch; its backward pass hides all buckets but
    the last one, that of the word vectors, a weight in one piece.
    """
    ranks, size = job.dp * job.cp, job.grad_bytes * (held.shared + held.experts)
    words = job.grad_bytes * job.vocab * job.hidden / job.tp if job.pp == 1 else 0
    end = min(size, max(words, BUCKET_BYTES))
    last, each = (watch.collective_us(operations.ALL_REDUCE, ranks, job.tp, of) for of in (end, BUCKET_BYTES))
    sent = last + each * (size - end) / BUCKET_BYTES
    visible = max(last, sent - BACKWARD_SHARE * per_batch) if job.overlap else sent
    return _Sent(visible, sent - visible)


def _optimizer(job: TrainingJob, watch: Stopwatch, held: StageWeights) -> float:
    """Microseconds of the update, and of clearing the gradients."""
    shards = (job.dp * job.cp, job.expert_dp) if job.distributed_optimizer else (1, 1)
    shards = (job.fsdp, job.expert_shards) if job.fsdp else shards
    own = held.shared / shards[0] + held.experts / shards[1]
    touched = own if job.fsdp else held.shared + held.experts
    step = sum(OPERATORS[each].elements({"elements": 1}) for each in STEP) * SIZES[FLOAT32]
    # Replicas scale their gradients before the sum, each is read and written; FSDP2 lets the collective do it.
    passes = 1 if job.fsdp or job.dp * job.cp == 1 else 3
    cast = 0.0
    if job.precision != "bf16" and not job.of_torch:
        # Transformer Engine quantises each weight of its products in the first micro-batch.
        cast = operations.quantised_bytes(job) * (held.products + held.experts)
    return watch.moved_us(step * own + passes * job.grad_bytes * touched + cast)
