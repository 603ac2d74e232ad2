"""The times of rows in the default dialect."""

from common.summary import JsonValue
from simulation.analytical.algorithms import bus_factor
from simulation.analytical.busbw_file import PP_KEY, BusBandwidths
from simulation.analytical.collective_time import GIGA, Candidate, CollectiveTime, CollectiveTimes
from simulation.analytical.machine import Question
from simulation.analytical.original.model import LEAST_FORWARD
from simulation.analytical.repairs import BROADCASTS, BUBBLE, GIGABYTE, OWN_GROUP, PIPELINE, SMALL
from simulation.analytical.schedules import CLOSED, INTERLEAVED, run_schedule
from simulation.analytical.times import Model, Overview, PhaseTime, RowTime, Totals
from simulation.analytical.workload import Cells, phases_of
from workloads.formats.simai_text import (  # fmt: skip
    ALL,
    BROADCAST,
    COLLECTIVES,
    DP,
    DP_EP,
    EMBEDDING,
    EP,
    EP_TP,
    NONE,
    PHASES,
    PP,
    TP,
    Phase,
)

MOST_BYTES = 1 << 50
BUCKET = {TP: TP, EP: EP, EP_TP: EP, DP: DP, DP_EP: DP_EP, ALL: DP, EMBEDDING: DP, PP: DP}


class RepairedModel(Model):
    """The default dialect, with the repairs that are in force."""

    def __init__(
        self, question: Question, repairs: frozenset[str], busbw: BusBandwidths | None, schedule: str = CLOSED
    ) -> None:
        self._question, self._repairs, self._busbw, self._schedule = question, repairs, busbw or {}, schedule
        self._times = CollectiveTimes(question, repairs, busbw)
        overlaps = question.overlaps
        self._overlap = {TP: overlaps.tp, EP: overlaps.ep, DP: overlaps.dp, DP_EP: overlaps.dp}
        self._giga = GIGA[GIGABYTE in repairs]
        self.meaningless = False

    def row(self, rest: Cells) -> RowTime:
        row = phases_of(rest)
        cells, phases = [], []
        for at, phase in enumerate(row):
            bucket = self._bucket(row, at)
            found = self._found(phase, at)
            time = 0 if found is None else round(found.chosen.time_us * 1000)
            exposed = round(time * (1 - self._overlap[bucket]))
            phases.append(PhaseTime(round(phase.compute_ns * self._question.slowness), time, exposed, bucket))
            algbw = phase.size / time if time else 0.0
            busbw = algbw * bus_factor(phase.collective, found.placed.ranks) if found else 0.0
            scale = 1e9 / self._giga
            cells.append(f"{time / 1000:.0f},{algbw * scale:.2f},{busbw * scale:.2f}")
        forward, gradient, weight = phases
        head = [f"{phase.compute / 1000:.0f}" for phase in (forward, weight, gradient)]
        head += [f"{phase.exposed / 1000:.0f}" for phase in (forward, weight, gradient)]
        text = ",".join(["Analytical_test", *head, cells[0], cells[2], cells[1]])
        forward_pass = self._pass(forward)
        passes = forward_pass + self._pass(gradient) + weight.compute
        return RowTime(forward, gradient, weight, text, passes, forward_pass)

    def overview(self, totals: Totals) -> Overview:
        division = self._question.division
        transfer = self.transfer_us() * (1 - self._question.overlaps.pp)
        if self._schedule == CLOSED or division.pp == 1:
            bubble = totals.passes * (division.pp - 1) / (division.ga * division.vpp)
            pipeline = transfer * 2 * division.vpp * division.ga
        else:
            bubble, pipeline = self._run(totals, transfer)
        total = totals.computation + totals.exposed_all + bubble + pipeline
        return Overview(totals.exposed, pipeline, bubble, totals.computation, totals.exposed_all, total)

    def _run(self, totals: Totals, transfer_us: float) -> tuple[float, float]:
        """Bubble and the time that transfers add, measured from the schedule."""
        division = self._question.division
        chunks = division.vpp if self._schedule == INTERLEAVED else 1
        forward = totals.forward_passes / division.ga
        backward = totals.passes / division.ga - forward
        runs = [
            run_schedule(self._schedule, division.pp, division.ga, chunks, forward, backward, transfer)
            for transfer in (0.0, transfer_us)
        ]
        return runs[0].bubble, runs[1].makespan - runs[0].makespan

    def transfer_us(self) -> float:
        """The time of one transfer between neighbouring stages."""
        division, overlap = self._question.division, self._question.overlaps.pp
        if PIPELINE not in self._repairs:
            return division.pp_comm / self._giga / overlap * 1e6 if overlap else 0.0
        if division.pp == 1 or not division.pp_comm:
            return 0.0
        return division.pp_comm / (self.stage_bandwidth()[0] * self._giga) * 1e6

    def stage_bandwidth(self) -> tuple[float, str]:
        """GB/s between two stages for one GPU, and what it is: NVLink only if all stages are in one server."""
        cluster = self._question.cluster_of(PP)
        measured = self._busbw.get((PP, PP_KEY))
        if measured is not None:
            return measured, "-busbw"
        if cluster.gpus <= cluster.gpus_per_server:
            return cluster.nvlink, "NVLink"
        return cluster.nic * cluster.nics_per_server / cluster.gpus_per_server, "a GPU's share of the NICs"

    def explain(self, rest: Cells) -> dict[str, JsonValue]:
        row = phases_of(rest)
        return {name: self._explained(row, at) for at, name in enumerate(PHASES)}

    def _bucket(self, row: tuple[Phase, ...], at: int) -> str:
        if OWN_GROUP in self._repairs:
            return BUCKET[row[at].group]
        if at == 2:
            return DP_EP if row[2].group == DP_EP else DP
        return EP if row[0].group == EP else TP

    def _found(self, phase: Phase, at: int) -> CollectiveTime | None:
        """The time of a phase's collective; None where nothing is sent."""
        if phase.collective == NONE or (phase.collective == BROADCAST and BROADCASTS not in self._repairs):
            return None
        if phase.collective not in COLLECTIVES:
            raise ValueError(f"{phase.collective!r} is none of {', '.join(COLLECTIVES)}, {NONE}")
        size = phase.size
        if size > MOST_BYTES:
            raise ValueError(f"{size} bytes are too many for one message, allowed is 2^50")
        if at == 0 and SMALL not in self._repairs and 0 < size < LEAST_FORWARD:
            size = LEAST_FORWARD
        if not size or self._times.placed(phase.group, at == 2).ranks <= 1:
            return None
        return self._times.time(phase.collective, phase.group, size, at == 2)

    def _pass(self, phase: PhaseTime) -> int:
        return phase.compute + (phase.exposed if BUBBLE in self._repairs else phase.communication)

    def _explained(self, row: tuple[Phase, ...], at: int) -> dict[str, JsonValue]:
        phase = row[at]
        computes = phase.compute_ns * self._question.slowness / 1000
        said: dict[str, JsonValue] = {"compute_us": computes, "collective": phase.collective}
        found = self._found(phase, at)
        if found is None:
            return said | {"communication_us": 0.0, "why": "nothing is sent, or the group has one GPU"}
        bucket = self._bucket(row, at)
        chosen, overlap = found.chosen, self._overlap[bucket]
        return said | {
            "group": phase.group,
            "bytes": phase.size,
            **found.placed._asdict(),
            "considered": [_said(candidate) for candidate in found.considered],
            "algorithm": chosen.way.algorithm,
            "why": _why(found),
            "communication_us": round(chosen.time_us, 3),
            "counted_as": bucket,
            "overlap": overlap,
            "exposed_us": round(chosen.time_us * (1 - overlap), 3),
        }


def _said(candidate: Candidate) -> dict[str, JsonValue]:
    return {
        "algorithm": candidate.way.algorithm,
        "bus_bandwidth_GBps": round(candidate.way.bandwidth, 4),
        "limited_by": candidate.way.limit,
        "efficiency": round(candidate.efficiency, 6),
        "efficiency_table": candidate.way.table,
        "bandwidth_us": round(candidate.bandwidth_us, 3),
        "latency_us": round(candidate.latency_us, 3),
        "time_us": round(candidate.time_us, 3),
    }


def _why(found: CollectiveTime) -> str:
    if len(found.considered) == 1:
        return "the only way"
    times = ", ".join(f"{one.way.algorithm} {one.time_us:.1f} us" for one in found.considered)
    return f"the fastest of {times}"
