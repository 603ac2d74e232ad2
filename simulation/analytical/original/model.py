"""The times of rows as the original computes them."""

from common.summary import JsonValue
from simulation.analytical.busbw_file import PP_KEY, BusBandwidths
from simulation.analytical.machine import Question
from simulation.analytical.original.arithmetic import KIBI3, WRAP, decimals, float32, quotient, unsigned, whole
from simulation.analytical.original.bandwidth import bus, reach, share
from simulation.analytical.times import Model, Overview, PhaseTime, RowTime, Totals
from simulation.analytical.workload import Cells
from workloads.formats.simai_text import (  # fmt: skip
    ALLGATHER,
    ALLREDUCE,
    ALLTOALL,
    DP,
    DP_EP,
    EP,
    PHASES,
    PP,
    REDUCESCATTER,
    SIMAI_SUFFIXES,
    TP,
    Phase,
    Row,
    parse_row,
)

SMALL = 1 << 20  # bytes; below, a fixed time
SMALL_US = {2: 10, 4: 12, 8: 15, 16: 66, 32: 135, 64: 200, 128: 320}
LEAST_FORWARD = 4096  # bytes
KNOWN = (ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL)
NO_BANDWIDTH = -1.0
MEANINGLESS_NS = 1e18  # 30 years; NaN and negative times are none either


class OriginalModel(Model):
    """SimAI 1.7; with bus bandwidths of a file, as the last version that could read one (2bdecddb) did."""

    def __init__(self, question: Question, busbw: BusBandwidths | None = None) -> None:
        self._question = question
        self._busbw = busbw
        self.meaningless = False

    def row(self, rest: Cells) -> RowTime:
        row = _phases(rest)
        overlaps = self._question.overlaps
        in_ep = row.forward.group == EP
        layer_overlap, bucket = (overlaps.ep, EP) if in_ep else (overlaps.tp, TP)
        forward, forward_cells = self._phase(row, 0, layer_overlap, bucket)
        gradient, gradient_cells = self._phase(row, 1, layer_overlap, bucket)
        weight, weight_cells = self._phase(row, 2, overlaps.dp, DP_EP if row.weight_gradient.group == DP_EP else DP)
        cells = [whole(phase.compute / 1000) for phase in (forward, weight, gradient)]
        cells += [whole(phase.exposed / 1000) for phase in (forward, weight, gradient)]
        text = ",".join(["Analytical_test", *cells, forward_cells, weight_cells, gradient_cells])
        computed = forward.compute + gradient.compute + weight.compute
        passes = (forward.communication + gradient.communication + computed) % WRAP
        return RowTime(forward, gradient, weight, text, passes, forward.compute + forward.communication)

    def overview(self, totals: Totals) -> Overview:
        division = self._question.division
        bubble = totals.passes * ((division.pp - 1) / (division.ga * division.vpp)) if division.pp > 1 else 0.0
        pipeline = float(self._pipeline_us())
        total = totals.computation + totals.exposed_all + bubble + pipeline
        return Overview(totals.exposed, pipeline, bubble, totals.computation, totals.exposed_all, total)

    def explain(self, rest: Cells) -> dict[str, JsonValue]:
        return {
            name: self._explained(phase, at == 2)
            for at, (name, phase) in enumerate(zip(PHASES, _phases(rest), strict=True))
        }

    def _explained(self, phase: Phase, weight: bool) -> dict[str, JsonValue]:
        said: dict[str, JsonValue] = {"compute_us": phase.compute_ns / 1000, "collective": phase.collective}
        ranks = self._ranks(phase.group, weight)
        if phase.collective not in KNOWN or self._free(phase, ranks):
            return said | {"communication_us": 0.0, "why": "nothing to send, or a name or group that costs nothing"}
        said |= {"group": phase.group, "bytes": phase.size, "ranks": ranks}
        if self._busbw is None and 1 < phase.size < SMALL:
            why = f"fixed time of a small message among {ranks} GPUs" + (
                "" if ranks in SMALL_US else ", not in the table"
            )
            return said | {"communication_us": float(SMALL_US.get(ranks, 0)), "why": why}
        bandwidth, part = self._speed(phase, ranks)
        if self._busbw is None:
            said |= dict(reach(self._question, phase.group, ranks)._asdict())
        said |= {"bus_bandwidth_GiBps": bandwidth, "efficiency": part}
        return said | {"communication_us": self._time(phase, ranks) / 1000, "why": "ring, bytes over bus bandwidth"}

    def _phase(self, row: tuple[Phase, ...], at: int, overlap: float, bucket: str) -> tuple[PhaseTime, str]:
        phase, weight = row[at], at == 2
        if at == 0 and 0 < phase.size < LEAST_FORWARD:
            phase = phase._replace(size=LEAST_FORWARD)
        ranks = self._ranks(phase.group, weight)
        time = self._time(phase, ranks)
        exposed = unsigned(float32(float32(time) * float32(1 - float32(overlap))))
        algbw = float32(quotient(phase.size / KIBI3, time / 1e9))
        busbw = 0.0
        if phase.collective in KNOWN:
            factor = 2 if phase.collective == ALLREDUCE else 1
            busbw = float32(quotient(float32(float32(algbw * factor) * (ranks - 1)), ranks))
        text = f"{whole(time / 1000)},{decimals(algbw)},{decimals(busbw)}"
        return PhaseTime(phase.compute_ns, time, exposed, bucket), text

    def _ranks(self, group: str, weight: bool) -> int:
        division = self._question.division
        if weight:
            return division.dp // division.ep if group == DP_EP else division.dp
        return division.ep if group == EP else division.tp

    def _free(self, phase: Phase, ranks: int) -> bool:
        return phase.collective not in KNOWN or (phase.group != TP and ranks <= 1)

    def _time(self, phase: Phase, ranks: int) -> int:
        """Time in ns: bytes / 2^30 / (efficiency * bandwidth) * k * (n-1)/n; the small messages' table before it."""
        if self._free(phase, ranks):
            return 0
        if self._busbw is None and 1 < phase.size < SMALL:
            return SMALL_US.get(ranks, 0) * 1000
        bandwidth, part = self._speed(phase, ranks)
        if bandwidth is None:
            return 0
        factor = 2 if phase.collective == ALLREDUCE else 1
        seconds = quotient(phase.size / KIBI3, float32(float32(part) * bandwidth))
        exact = quotient(seconds * 1e9 * factor * (ranks - 1), ranks)
        self.meaningless |= not 0 <= exact < MEANINGLESS_NS
        return unsigned(exact) % WRAP

    def _speed(self, phase: Phase, ranks: int) -> tuple[float | None, float]:
        """Bus bandwidth (None: the collective costs nothing) and efficiency."""
        if self._busbw is not None:
            return self._from_file(phase), 1.0
        found = bus(self._question, phase.group, phase.collective, ranks)
        return found.bandwidth, share(self._question, phase.group, phase.collective, ranks, phase.size, found.by_nvlink)

    def _from_file(self, phase: Phase) -> float | None:
        assert self._busbw is not None
        question, collective = self._question, phase.collective
        key: tuple[str, str] | None = None
        if phase.group == TP:
            key = (TP, ALLGATHER if collective == REDUCESCATTER else collective)
        elif phase.group == EP:
            inside = question.division.tp <= question.cluster.gpus_per_server
            if collective == ALLREDUCE:
                key = (TP, ALLREDUCE)
            elif collective == ALLTOALL and inside:
                key = (EP, ALLTOALL)
        elif phase.group == DP and question.cluster.gpus <= question.cluster.gpus_per_server:
            key = (TP, ALLREDUCE) if collective == ALLREDUCE else None
        else:
            group = EP if phase.group == DP_EP else DP
            key = (group, ALLREDUCE if collective == ALLREDUCE else ALLGATHER)
        return None if key is None else float32(self._busbw.get(key, NO_BANDWIDTH))

    def _pipeline_us(self) -> int:
        """The time of sends between stages. Its divisor is the overlap ratio, a mistake, unless a file has PP's."""
        division, overlap = self._question.division, float32(self._question.overlaps.pp)
        divisor = overlap if self._busbw is None else float32(self._busbw.get((PP, PP_KEY), NO_BANDWIDTH))
        transfers = 2 * division.vpp * division.ga
        sent = unsigned(transfers * quotient(division.pp_comm / KIBI3, divisor) * 1e9 / 1000)
        return unsigned(float32(float32(sent) * float32(1 - overlap)))


def _phases(cells: Cells) -> Row:
    """As the original reads a text; it reads nothing else."""
    return parse_row(cells, SIMAI_SUFFIXES, lenient=True) if isinstance(cells, bytes) else cells
