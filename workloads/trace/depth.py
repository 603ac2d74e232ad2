"""Infers the trace of a deep job from traces of shallow ones, and proves the inference on one more depth.

A depth is the layers of a model chunk: of a pipeline stage, with virtual stages of each of these. `runs` has the
pattern of a pass, `deep` says where a pattern does not hold at the depth of the job.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from workloads.job.errors import AicbError
from workloads.rows.calls import Call
from workloads.rows.ops import NEVER
from workloads.rows.ranks import split_module
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace
from workloads.trace.runs import Letter, NoPatternError, Pattern, passes, patterns


class DepthError(AicbError):
    """The trace of a job cannot be inferred from shallow ones; the message says why."""


def depth_of(job: TraceJob) -> int:
    """Layers of each chunk of the traced rank."""
    return _spans(job)[0][1]


def at_depth(job: TraceJob, depth: int) -> TraceJob:
    """The job with `depth` layers in every chunk of every stage."""
    layers = depth * job.pipeline_model_parallel * job.virtual_pipeline
    return replace(job, num_layers=layers, num_layers_first_stage=None, num_layers_last_stage=None)


def is_divided(job: TraceJob) -> bool:
    """Whether every layer has a chunk."""
    return sum(_sizes(job)) * job.virtual_pipeline == job.num_layers


def _spans(job: TraceJob) -> list[tuple[int, int]]:
    """First layer and number of layers of each chunk of the rank's stage.

    Virtual stage v of stage p is chunk v * pp + p of the model.
    """
    sizes = _sizes(job)
    before = sum(sizes[: job.pp_stage])
    return [(before + number * sum(sizes), sizes[job.pp_stage]) for number in range(job.virtual_pipeline)]


def _sizes(job: TraceJob) -> list[int]:
    """Layers of each stage's chunk: first and last may have their own number, the others share the rest."""
    stages = job.pipeline_model_parallel
    own = {0: job.num_layers_first_stage, stages - 1: job.num_layers_last_stage}
    fixed = {stage: layers for stage, layers in own.items() if layers is not None}
    shared = (job.num_layers - sum(fixed.values())) // max(1, stages - len(fixed))
    return [fixed.get(stage, shared) // job.virtual_pipeline for stage in range(stages)]


@dataclass(frozen=True, slots=True)
class PassPattern:
    """The patterns of one pass. downwards: layers are counted from the chunk's last."""

    patterns: tuple[Pattern, ...]
    downwards: bool

    def at(self, depth: int) -> list[Letter]:
        """The calls at a depth."""
        return [letter for each in self.patterns for letter in each.at(depth)]


class Inferred:
    """The calls of a job at any depth, from its traces at two depths.

    Raises:
        NoPatternError: the two traces differ by more than equal layers.
    """

    def __init__(self, short: Trace, long: Trace) -> None:
        self.depths = depth_of(short.job), depth_of(long.job)
        self.versions = short.versions
        self.iterations = [
            _patterns(few, many, (short.job, long.job), self.depths)
            for few, many in zip(short.iterations, long.iterations, strict=True)
        ]

    def at(self, job: TraceJob) -> Trace:
        """The trace of the job, whose depth is any from the first of `depths` on."""
        spans = _spans(job)
        found = (
            tuple(_op(letter, spans, downwards=part.downwards) for part in each for letter in part.at(spans[0][1]))
            for each in self.iterations
        )
        return Trace(job, self.versions, tuple(found))

    def growing(self, job: TraceJob) -> list[Call]:
        """The calls whose size depends on the depth, as they are in the job."""
        spans = _spans(job)
        return [
            _op(line.at(spans[0][1]), spans, downwards=False)
            for each in self.iterations
            for part in each
            for each_pattern in part.patterns
            for line in each_pattern.lines
        ]


def prove(depths: tuple[int, int], inferred: Trace, trace: Trace) -> None:
    """Compare what is inferred from `depths` with the trace of the same job.

    Raises:
        DepthError: they differ; the message names the first operation that does.
    """
    predicted = inferred.ops
    depth = depth_of(trace.job)
    for number, (said, sent) in enumerate(zip(predicted, trace.ops, strict=False)):
        if said != sent:
            raise DepthError(
                f"layers_traced {depths[0]},{depths[1]}: with {depth} layers operation {number} is "
                f"{_text(sent)}, but was inferred to be {_text(said)}"
            )
    if len(predicted) != len(trace.ops):
        number = min(len(predicted), len(trace.ops))
        ops, what = (predicted, "inferred") if len(predicted) > number else (trace.ops, "sent")
        raise DepthError(
            f"layers_traced {depths[0]},{depths[1]}: with {depth} layers {len(predicted)} operations "
            f"are inferred and {len(trace.ops)} sent; only {what}, the first: operation {number}, {_text(ops[number])}"
        )


def _text(op: Call) -> str:
    where = f" in {op.module}" if op.module else ""
    waits = "never waited for" if op.overlap == NEVER else f"waited for {op.overlap} operations later"
    return f"{op.comm_type.name} of {op.bytes} bytes over {op.group}{where} ({op.phase}, {waits})"


def _patterns(
    short: Sequence[Call], long: Sequence[Call], jobs: tuple[TraceJob, TraceJob], depths: tuple[int, int]
) -> list[PassPattern]:
    few, many = (passes([(op.phase, op.micro_batch) for op in ops]) for ops in (short, long))
    if [key for key, _ in few] != [key for key, _ in many]:
        raise NoPatternError(f"the passes with {depths[0]} and {depths[1]} layers are not the same")
    return [_pattern(short[a], long[b], jobs, depths, key) for (key, a), (_, b) in zip(few, many, strict=True)]


def _pattern(
    short: Sequence[Call],
    long: Sequence[Call],
    jobs: tuple[TraceJob, TraceJob],
    depths: tuple[int, int],
    key: tuple[object, ...],
) -> PassPattern:
    reasons = []
    for downwards in (False, True):
        few, many = (
            _letters(ops, _spans(job), downwards=downwards) for ops, job in zip((short, long), jobs, strict=True)
        )
        try:
            return PassPattern(tuple(patterns(few, many, depths)), downwards)
        except NoPatternError as reason:
            reasons.append(str(reason))
    batch = "" if key[1] is None else f" of micro-batch {key[1]}"
    raise NoPatternError(f"{key[0]}{batch}: {reasons[-1]}")


def _letters(ops: Iterable[Call], spans: list[tuple[int, int]], *, downwards: bool) -> list[Letter]:
    return [_letter(op, spans, downwards=downwards) for op in ops]


def _letter(op: Call, spans: list[tuple[int, int]], *, downwards: bool) -> Letter:
    before, layer, after, chunk = op.module, None, "", 0
    split = split_module(op.module) if op.module else None
    if split is not None:
        before, number, after = split
        chunk = next((at for at, (start, layers) in enumerate(spans) if start <= number < start + layers), -1)
        if chunk < 0:
            raise NoPatternError(f"module {op.module} is of no layer of the traced stage")
        start, layers = spans[chunk]
        layer = start + layers - 1 - number if downwards else number - start
    call = replace(op, overlap=None, bytes=0, module=before)
    return Letter((call, after, chunk), layer, op.bytes, None if op.overlap == NEVER else op.overlap)


def _op(letter: Letter, spans: list[tuple[int, int]], *, downwards: bool) -> Call:
    call, after, chunk = letter.key
    module = call.module
    if letter.layer is not None:
        start, layers = spans[chunk]
        module = f"{module}{start + (layers - 1 - letter.layer if downwards else letter.layer)}{after}"
    distance = NEVER if letter.distance is None else letter.distance
    if letter.distance is not None and letter.distance < 0:
        raise DepthError(
            f"{call.comm_type.name} {call.group} ({call.phase}) is inferred to be waited for before it is issued"
        )
    return replace(call, bytes=letter.bytes, overlap=distance, module=module)
