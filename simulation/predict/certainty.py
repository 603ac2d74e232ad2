"""Says how sure a prediction is: an interval around it, and what was assumed.

Of each kind of job at least 90 % of the public rows and of our own lie in the interval (SimuMax's B200,
Megatron-Bridge, torchtitan, one H100, one H200): tests/simulation/predict/test_measured.py counts them.
"""

from typing import NamedTuple

from simulation.predict.iteration import Prediction
from workloads.job.rules import past_positions
from workloads.job.training_job import TrainingJob

ASSUMED = 1.25
"""By how much an interval widens where the factor of sustained products is of another GPU or precision."""
EXTRAPOLATED = 1.2
"""By how much it widens beyond the GPUs and lengths that were measured."""
MOST_GPUS, LONGEST = 1024, 32768
HOST_MS = 6.7
"""Milliseconds in which a host starts both passes of a layer of FSDP2: twelve small layers took 80 ms a step, their
kernels 31 (one H100 in a virtual machine, 2026-11-27). One host is no law: what is predicted stays, and the interval
ends there. Without a compiler DDP starts the same kernels; full recomputation starts the forward pass twice.
"""


class Interval(NamedTuple):
    """Milliseconds between which the iteration is expected in 9 of 10 cases, and why it is as wide."""

    low: float
    high: float
    notes: tuple[str, ...]


_KINDS = {
    # experts, overlap: least and most of measured over predicted
    (False, False): (0.88, 1.12),
    (False, True): (0.87, 1.16),
    (True, False): (0.85, 1.20),
    (True, True): (0.60, 2.20),
}


def interval(found: Prediction) -> Interval:
    """The interval of a prediction."""
    job, machine = found.job, found.machine
    low, high = _KINDS[bool(job.experts), job.overlap]
    notes = []
    if job.experts and job.overlap:
        notes.append("how experts' tokens are dispatched and overlapped differs between frameworks by a factor of two")
    source = machine.factors.source.get(job.precision, "")
    if source.startswith("assumed"):
        low, high = low / ASSUMED, high * ASSUMED
        notes.append(f"sustained clocks of {machine.gpu} in {job.precision} are {source}")
    if job.replicated:
        notes.append("DDP's gradients are views of its buckets (gradient_as_bucket_view); else they are held twice")
    notes += _unknown_scaling(job)
    notes += filter(None, [past_positions(job.name, job.seq, job.positions)])
    if job.latent is not None and job.tp > 1:
        notes.append(
            "latent attention's narrow projections are timed as Megatron's own layers, divided over tp and gathered; "
            "Transformer Engine's are whole on each rank, as memory has them"
        )
    beyond = [
        said
        for said, over in (
            (f"{job.gpus} GPUs: more than the {MOST_GPUS} that were measured", job.gpus > MOST_GPUS),
            (f"sequences of {job.seq}: longer than the {LONGEST} that were measured", job.seq > LONGEST),
            ("full recomputation was measured of torch's decoder alone", _is_unknown_recomputation(job)),
        )
        if over
    ]
    for said in beyond:
        low, high = low / EXTRAPOLATED, high * EXTRAPOLATED
        notes.append(f"extrapolated: {said}")
    slowest = _host_ms(job)
    if slowest > found.ms * high:
        notes.append(
            f"extrapolated: the host may decide; it was measured once, where it took {HOST_MS} ms to start the kernels "
            "of a small layer, and the GPU waited"
        )
    return Interval(found.ms * low, max(found.ms * high, slowest), tuple(notes))


def _is_unknown_recomputation(job: TrainingJob) -> bool:
    return job.recompute == "full" and not job.is_torch_decoder


def _host_ms(job: TrainingJob) -> float:
    """Milliseconds in which a host starts an iteration, as the one that was measured; 0: of unknown kernels."""
    if not job.of_torch or (job.replicated and job.compiled):
        return 0.0
    # The backward pass starts about twice as many kernels as the forward pass.
    passes = 4 / 3 if job.recompute == "full" else 1.0
    return HOST_MS * passes * job.layers / job.pp * job.micro_batches


def _unknown_scaling(job: TrainingJob) -> list[str]:
    """Notes of a scaling of FP8 that the job's modules are not timed with."""
    if job.scaling == "rowwise" and not job.by_rows:
        where = "FP8 in dense models whose heads x head_dim = hidden, with fsdp or ddp, tp 1 and cp 1"
        return [f"scaling by rows has no effect here: it is known of {where}"]
    if job.of_torch and job.precision == "fp8" and job.scaling in ("mxfp8", "delayed"):
        return [f"{job.scaling} scaling has no effect here: torch's FP8 is timed with a scale for a tensor"]
    return []


def memory_source(job: TrainingJob) -> str:
    """Where the memory is from, whose measurements hold it, and what of the job none of these has."""
    own = job.of_torch and not job.replicated and job.dp * job.cp == 1
    unknown = (
        (f"{job.recompute} recomputation", job.recompute != "none" and (own or not job.of_torch)),
        (job.precision, job.precision != "bf16" and (own or not job.of_torch)),
        ("interleaved stages", job.vpp > 1),
        ("Megatron's FSDP", job.megatron),
        ("DDP", job.replicated),
        *((name, job.of_torch and is_there) for name, is_there in (
            ("tensor parallelism", job.tp > 1), ("pipelines", job.pp > 1), ("divided sequences", job.cp > 1),
            ("experts", bool(job.experts)),
        )),
    )  # fmt: skip
    by = "one H100's allocated bytes" if own else "torchtitan's reserved ones" if job.of_torch else "SimuMax's on B200"
    beyond = ", ".join(name for name, is_there in unknown if is_there)
    return f"counted, held against {by}" + f"; extrapolated to {beyond}" * bool(beyond)


FLAT_MFU = 0.40
FLAT_EFFICIENCY = 0.45
"""Baselines that need no table: one MFU for all jobs, and one share of the peak for all products."""


def flat_mfu_ms(found: Prediction) -> float:
    """The time by one MFU for all, in ms."""
    return found.ms * found.mfu / FLAT_MFU


def flat_efficiency_ms(found: Prediction) -> float:
    """The time by one efficiency of products in place of their tables, the rest as predicted, in ms."""
    peak = found.machine.peak_tflops(found.job.precision)
    share = {"products", "experts", "head", "attention"}
    rest = found.ms - sum(ms for key, ms in found.classes.items() if key in share)
    return rest + found.flops / found.job.gpus / 1e9 / peak / FLAT_EFFICIENCY
