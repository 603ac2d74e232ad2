"""Predicts passes of inference from the tables of training: time to the first token (prefill), and per token (decode).

Kernels run as in the tables' bursts, none beside another, in graphs that the host starts at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from common.errors import input_problem
from common.summary import JsonValue
from simulation.predict import kernels, operations
from simulation.predict.duration import MEASURED_GPUS, Stopwatch, Times
from simulation.predict.job import TrainingJob
from simulation.predict.machine import Machine
from simulation.predict.memory import GIB
from simulation.predict.weights import layers_of, stage_weights
from workloads.job.parameters import DECODE

OF_TRAINING = ("gbs", "vpp", "cp", "recompute", "fsdp", "overlap")
"""Columns of a job that no pass without gradients has."""
AGREES = 12
"""In %: nine of ten of AIConfigurator's estimates from the same tables lie this near (test_inference.py)."""
WEIGHT_BYTES = {"bf16": 2.0, "fp8": 1.0, "nvfp4": 0.5}
"""Of a layer's weight; embedding and head stay in 16 bits."""


class EngineWatch(Stopwatch):
    """Times an inference engine's kernels: in a graph; sums of a server's GPUs by its own or NCCL's, the faster."""

    def collective_us(self, op: str, ranks: int, stride: int, size: float) -> float:
        """See Stopwatch."""
        us = super().collective_us(op, ranks, stride, size)
        if op == operations.ALL_REDUCE and 1 < ranks <= MEASURED_GPUS and ranks * stride <= self.machine.nvlink_domain:
            return min(us, kernels.all_reduce_us(self.machine.gpu, ranks, size))
        return us


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass of `job.mbs` sequences on one replica: prompts of job.seq tokens, or a token each after as many.

    ms: until its last stage has the token; classes: the same by class; memory: GiB of weights, keys and values on the
    fullest stage.
    """

    job: TrainingJob
    machine: Machine
    phase: str
    ms: float
    classes: dict[str, float]
    memory: float

    @property
    def tokens_per_second_and_gpu(self) -> float:
        """New tokens in decode, tokens of prompts in prefill; stages work on other batches meanwhile."""
        job = self.job
        return job.mbs * (1 if self.phase == DECODE else job.seq) / self.ms * 1e3 / job.tp


def one_pass(job: TrainingJob, machine: Machine, phase: str) -> Pass:
    """Predict one pass.

    Raises:
        InputProblems: no table has the kernels of its attention.
    """
    if job.latent is not None and phase == DECODE:
        raise input_problem("--phase", phase, "no table here has latent attention (MLA) of one token; allowed: prefill")
    job = replace(job, sp=False, overlap=False, fsdp=0, recompute="none", micro_batches=1)
    machine = machine.servers_of(job.gpus_per_node) or machine
    bursts = replace(machine.factors, products=dict.fromkeys(machine.factors.products, 1.0))
    machine = replace(machine, factors=bursts).limited(job.power_limit, job.memory_GBps)
    watch = EngineWatch(job, machine)
    embedding, dense, expert, head = (
        watch.part(part) if part else Times() for part in operations.inference_parts(job, phase)
    )
    times = Times()
    for part, count in (
        (embedding, 1), (dense, job.leading_dense), (expert, job.layers - job.leading_dense), (head, 1),
    ):  # fmt: skip
        times.add(part, count)
    times.pop("host", None)
    if job.pp > 1:
        tokens = job.mbs * (1 if phase == DECODE else job.seq)
        times["pipeline"] = (job.pp - 1) * watch.send_us(operations.HALF * tokens * job.hidden, job.tp * job.dp)
    classes = {key: us / 1e3 for key, us in sorted(times.items(), key=lambda each: -each[1]) if us}
    held = max(_held(job, stage) for stage in range(job.pp)) / GIB
    return Pass(job, machine, phase, sum(times.values()) / 1e3, classes, held)


def _held(job: TrainingJob, stage: int) -> float:
    """Bytes of weights, keys and values on a rank of a stage."""
    its, each = stage_weights(job, stage), WEIGHT_BYTES[job.precision]
    weights = each * (its.layers + its.experts) + operations.HALF * (its.shared - its.layers)
    of_token = 2 * job.head_dim * max(1, job.kv_heads // job.tp)
    if job.latent is not None:
        of_token = job.latent.kv_lora + job.latent.rope
    return weights + operations.HALF * job.mbs * (job.seq + 1) * sum(layers_of(job, stage)) * of_token


def text(found: Sequence[Pass]) -> str:
    """The passes for a person, one a line."""
    job, machine, phase = found[0].job, found[0].machine, found[0].phase
    what = "per token" if phase == DECODE else "to the first token"
    lines = [
        f"{job.name}, {phase} on {job.tp * job.pp} {machine.gpu} (tp {job.tp}, pp {job.pp}), {job.precision}",
        f"{'batch':>6} {'length':>7} {f'ms {what}':>22} {'tokens/s/GPU':>13} {'GiB':>7}",
    ]
    for each in found:
        fits = "" if each.memory <= machine.memory_GiB else f"  DOES NOT FIT {machine.memory_GiB:g}"
        lines.append(
            f"{each.job.mbs:>6} {each.job.seq:>7} {each.ms:>22.2f} {each.tokens_per_second_and_gpu:>13.0f} "
            f"{each.memory:>7.1f}{fits}"
        )
    said = (
        f"nine of ten of AIConfigurator's estimates lie within {AGREES} % of these; none is a measurement of a server"
    )
    return "\n".join([*lines, said])


def data(found: Sequence[Pass]) -> dict[str, JsonValue]:
    """The same for a program."""
    passes: list[JsonValue] = [
        {
            "batch": each.job.mbs, "length": each.job.seq, "predicted_ms": each.ms, "classes_ms": each.classes,
            "tokens_per_second_and_gpu": each.tokens_per_second_and_gpu, "memory_gib": each.memory,
            "fits": each.memory <= each.machine.memory_GiB,
        }
        for each in found
    ]  # fmt: skip
    first = found[0]
    return {"name": first.job.name, "gpu": first.machine.gpu, "phase": first.phase, "passes": passes}
