"""Predicts passes of inference from the tables of training: time to the first token (prefill), and per token (decode).

Kernels run as in the tables' bursts, none beside another, in graphs that the host starts at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.errors import input_problem
from common.summary import JsonValue
from simulation.predict import kernels, operations
from simulation.predict.duration import MEASURED_GPUS, Sent, Stopwatch, Times
from simulation.predict.machine import Machine
from simulation.predict.sources import Kernel, kernels_by, sent_sentence, sentence, shares
from workloads.job.memory import GIB, RESERVED
from workloads.job.parameters import DECODE
from workloads.job.rules import past_positions
from workloads.job.training_job import TrainingJob
from workloads.job.weights import layers_of, stage_weights

OF_TRAINING = ("gbs", "vpp", "cp", "recompute", "fsdp", "overlap")
"""Columns of a job that no pass without gradients has."""
NO_COLUMNS = (*OF_TRAINING, "dp", "micro_batches", "sp")
"""Those, and what follows from them or divides a sequence, which nothing does in a pass."""
AGREES = {"dense": 12, "prefill": 55, "decode": 20}
"""In %: nine of ten of AIConfigurator's estimates from the same tables lie this near; dense, and by phase with experts,
of which its engines differ by more (test_inference.py).
"""
ESTIMATED, MOST_TP, MOST_BATCH, LENGTHS = ("H100", "H200", "B200"), 8, 64, (1024, 16384)
"""GPUs, tensor and expert parallel size, batch and tokens of a sequence of those estimates; dense ones on A100, too."""


class EngineWatch(Stopwatch):
    """Times an engine's kernels: a graph; its own experts and latent attention; the faster of its or NCCL's sums."""

    is_engine = True

    def timed(self, operation: operations.Operation) -> tuple[str, float]:
        job, gpu = self.job, self.machine.gpu
        if isinstance(operation, operations.Experts):
            return operations.EXPERTS, kernels.experts_us(gpu, self.precision, *operation)
        if job.latent is not None and isinstance(operation, operations.Attention):
            its = operation
            return operations.ATTENTION, kernels.latent_us(gpu, its.seq, its.heads, its.qk + its.v)
        if job.latent is not None and isinstance(operation, operations.Decoding):
            # What turns queries and values is the projection of keys and values, in parts (DeepSeek-V2, section 2.1.2).
            widths, heads = 2 * job.latent.kv_lora + job.latent.rope, operation.units // job.mbs
            return operations.ATTENTION, kernels.latent_decode_us(gpu, operation.context, job.mbs, heads, widths)
        return super().timed(operation)

    def _over_tables(self, at: operations.Attention) -> float:
        return 1.0

    def timed_collective(self, op: str, ranks: int, stride: int, size: float) -> tuple[float, str]:
        found = super().timed_collective(op, ranks, stride, size)
        if op == operations.ALL_REDUCE and ranks <= MEASURED_GPUS and ranks * stride <= self.machine.nvlink_domain:
            gpu = self.machine.gpu
            own = kernels.all_reduce_us(gpu, ranks, size), kernels.all_reduce_source(gpu, ranks, size)
            return min(found, own) if self.is_nvlink_measured else own
        return found


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of `job.mbs` sequences on one replica: prompts of job.seq tokens, or a token each after as many.

    ms: until its last stage has the token; classes: the same by class; memory: GiB of weights, and of the keys and
    values of as many batches as there are stages, on the fullest of these. kernels, sent: what runs, and is sent.
    """

    job: TrainingJob
    machine: Machine
    phase: str
    ms: float
    classes: dict[str, float]
    memory: float
    kernels: tuple[Kernel, ...]
    sent: tuple[Sent, ...]

    @property
    def tokens_per_second_and_gpu(self) -> float:
        """New tokens in decode, tokens of prompts in prefill; stages work on other batches meanwhile."""
        job = self.job
        return job.mbs * (1 if self.phase == DECODE else job.seq) / self.ms * 1e3 / job.tp

    @property
    def gpus(self) -> int:
        """Of as many replicas as share experts."""
        return max(self.job.tp, self.job.ep) * self.job.pp

    @property
    def fits(self) -> bool:
        """Whether weights, keys and values fit into a GPU; activations are not counted."""
        return self.memory * RESERVED <= self.machine.memory_GiB

    @property
    def past_positions(self) -> str:
        """A warning that the prompt, or the token after it, lies past the model's positions, "": it does not."""
        return past_positions(self.job.name, self.job.seq + (self.phase == DECODE), self.job.positions)

    @property
    def beyond(self) -> list[str]:
        """Its properties that no estimate of AIConfigurator has that is held here (test_inference.py)."""
        job = self.job
        seen = (
            ("latent attention without experts", job.latent is None or bool(job.experts)),
            ("pipelines", job.pp == 1),
            (f"tp {job.tp}", job.tp <= MOST_TP),
            (f"ep {job.ep}", job.ep <= MOST_TP),
            (job.gpu, job.gpu in ESTIMATED or (job.gpu == "A100" and not job.experts)),
            (job.precision, job.precision != "nvfp4"),
            ("a power limit", not job.power_limit),
            (f"batch {job.mbs}", job.mbs <= MOST_BATCH),
            (f"length {job.seq}", LENGTHS[0] <= job.seq <= LENGTHS[1]),
        )
        return [name for name, is_seen in seen if not is_seen]


def one_pass(job: TrainingJob, machine: Machine, phase: str) -> Pass:
    """Predict one pass.

    Raises:
        InputProblems: heads or experts do not divide over the ranks.
    """
    if job.kv_heads % job.tp and job.tp % job.kv_heads:
        heads = f"the {job.kv_heads} heads of keys and values"
        raise input_problem("--tp", job.tp, f"must be a divisor or a multiple of {heads}")
    if job.experts and (max(job.ep, job.tp) % min(job.ep, job.tp) or job.moe_ffn % max(1, job.tp // job.ep)):
        raise input_problem(
            "--ep", job.ep, f"must be a multiple of tp {job.tp}, or a divisor by whose rest moe_ffn divides"
        )
    job = replace(job, sp=False, overlap=False, fsdp=0, recompute="none", micro_batches=1)
    machine = machine.servers_of(job.gpus_per_node) or machine
    bursts = replace(machine.factors, products=dict.fromkeys(machine.factors.products, 1.0), dispatch=1.0)
    machine = replace(machine, factors=bursts).limited(job.power_limit, job.memory_GBps)
    watch = EngineWatch(job, machine)
    pieces, times = operations.inference_parts(job, phase), Times()
    counts = (1, job.leading_dense, job.layers - job.leading_dense, 1)
    for part, count in zip(pieces, counts, strict=True):
        times.add(watch.part(part) if part else Times(), count)
    times.pop("host", None)
    if job.pp > 1:
        tokens = job.mbs * (1 if phase == DECODE else job.seq)
        times["pp"] = (job.pp - 1) * watch.send_us(operations.HALF * tokens * job.hidden, job.tp * job.dp)
    classes = {key: us / 1e3 for key, us in sorted(times.items(), key=lambda each: -each[1]) if us}
    held = max(_held(job, stage) for stage in range(job.pp)) / GIB
    ran = tuple(kernels_by(watch, pieces, counts))
    return Pass(job, machine, phase, sum(times.values()) / 1e3, classes, held, ran, tuple(watch.sent))


def _held(job: TrainingJob, stage: int) -> float:
    """Bytes of weights, keys and values on a rank of a stage."""
    its, each = stage_weights(job, stage), kernels.WEIGHT_BYTES[job.precision]
    experts = its.experts * job.ep / max(job.ep, job.tp)
    weights = each * (its.layers + experts) + operations.HALF * (its.shared - its.layers)
    of_token = 2 * job.head_dim * max(1, job.kv_heads // job.tp)
    if job.latent is not None:
        of_token = job.latent.kv_lora + job.latent.rope
    tokens = job.full_share * (job.seq + 1) + (1 - job.full_share) * min(job.seq + 1, job.window)
    return weights + operations.HALF * job.mbs * job.pp * tokens * sum(layers_of(job, stage)) * of_token


def text(found: Sequence[Pass]) -> str:
    """The passes for a person, one a line."""
    job, machine, phase = found[0].job, found[0].machine, found[0].phase
    what, gpus = what_takes(phase), found[0].gpus
    among = f"{gpus} of {job.gpus}" if job.gpus > gpus else f"{gpus}"
    lines = [
        f"{job.name}, {phase} on {among} {machine.gpu} (tp {job.tp}, pp {job.pp}, ep {job.ep}), {job.precision}",
        f"{'batch':>6} {'length':>7} {f'ms {what}':>22} {'tokens/s/GPU':>13} {'GiB w+kv':>9}",
    ]
    for each in found:
        fits = "" if each.fits else f"  DOES NOT FIT {machine.memory_GiB:g}"
        lines.append(
            f"{each.job.mbs:>6} {each.job.seq:>7} {each.ms:>22.2f} {each.tokens_per_second_and_gpu:>13.0f} "
            f"{each.memory:>9.1f}{fits}"
        )
    return "\n".join([*lines, *_notes(found)])


def what_takes(phase: str) -> str:
    """In words, what the milliseconds of a phase are for."""
    return "per token" if phase == DECODE else "to the first token"


def _notes(found: Sequence[Pass]) -> list[str]:
    """How sure the passes are."""
    beyond = dict.fromkeys(said for each in found for said in each.beyond)
    agrees = AGREES[found[0].phase if found[0].job.experts else "dense"]
    lines = (sentence([kernel for each in found for kernel in each.kernels]), sent_sentence(_sent(found)))
    return [
        *(f"{name}: {line}" for name, line in zip(("kernels", "collectives"), lines, strict=True) if line),
        "GiB w+kv: weights, keys and values; activations are not counted",
        f"nine of ten of AIConfigurator's estimates lie within {agrees} % of these; none is a measurement of a server",
        *(["experts get as many tokens each: a router that prefers some takes longer"] if found[0].job.experts else []),
        *([f"warning: {past}"] if (past := max(found, key=lambda each: each.job.seq).past_positions) else []),
        *([f"extrapolated: no estimate was compared that has {', '.join(beyond)}"] if beyond else []),
    ]


def _sent(found: Sequence[Pass]) -> list[Sent]:
    return [*dict.fromkeys(sent for each in found for sent in each.sent)]


def data(found: Sequence[Pass]) -> dict[str, JsonValue]:
    """The same for a program."""
    passes: list[JsonValue] = [
        {
            "phase": each.phase, "batch": each.job.mbs, "length": each.job.seq, "predicted_ms": each.ms,
            "classes_ms": each.classes, "tokens_per_second_and_gpu": each.tokens_per_second_and_gpu,
            "memory_gib": each.memory, "fits": each.fits, "extrapolated": [*each.beyond],
            "kernels": [kernel._asdict() for kernel in each.kernels], "kernels_percent": shares(each.kernels),
            "collectives": [sent._asdict() for sent in each.sent],
        }
        for each in found
    ]  # fmt: skip
    job, phases = found[0].job, dict[str, list[Pass]]()
    for each in found:
        phases.setdefault(each.phase, []).append(each)
    return {
        "name": job.name, "gpu": found[0].machine.gpu, "phase": ", ".join(phases), "gpus": found[0].gpus,
        "replicas": job.gpus // found[0].gpus, "tp": job.tp, "pp": job.pp, "ep": job.ep,
        "precision": job.precision, "capacity_gib": found[0].machine.memory_GiB,
        "notes": [*dict.fromkeys(note for its in phases.values() for note in _notes(its))], "passes": passes,
    }  # fmt: skip
