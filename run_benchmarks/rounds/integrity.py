"""Collects disturbances of a round for `integrity` in round.json. A remark does not change the verdict."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from protocol import safe_json
from protocol.finding import PartFinding
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection.facts import HostFacts
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.machines import SHARED_KERNEL, share_a_kernel
from run_benchmarks.inspection.neighbours import HostActivity, look
from run_benchmarks.inspection.storage import storage_findings
from run_benchmarks.plan.plan import Plan
from run_benchmarks.results.remarks import Integrity, Remark
from run_benchmarks.results.samples.disturbances import Disturbances, process_seconds, read_disturbances
from run_benchmarks.runtimes.base import Runtime
from run_benchmarks.state.context import RunningNode

MONITOR_FILE = "monitor.jsonl"
# Foreign load: at least this fraction of the cores, and at least half a core.
FOREIGN_SHARE, FOREIGN_CORES = 0.05, 0.5
OTHER_RUNS, FILE_SYSTEMS = "other runs", "file systems"  # begins what could not be seen of them
BESIDE = "at the same time"  # cases that share the network with this one
SHORTEST_S = 5.0  # samples arrive once a second: over less time their edges weigh too much
BUSY_LOAD = 0.5  # runnable tasks per core
LOAD_IS_OF = 300.0  # seconds for which the load from the check is valid for a round
FOREIGN_DEVICE_BYTES = 1 << 30  # drivers reserve some memory
MAX_REMARKS = 50  # of one host's monitor


class Neighbourhood:
    """Looks for other runs on the hosts of one round, before its tasks start and after they ended; use once."""

    def __init__(self, plan: Plan, runtime: Runtime, beside: Sequence[str] = ()) -> None:
        self._plan, self._runtime, self._beside = plan, runtime, beside
        self._before: Mapping[str, HostActivity] = {}
        self._after: Mapping[str, HostActivity] = {}
        self._before_ms = self._after_ms = 0
        self._data = {case.data_dir_host for case in plan.cases if case.data_dir_host}
        self.unseen: list[str] = []

    def look_before(self, nodes: Mapping[str, RunningNode]) -> None:
        """Look at every host; a host that does not answer is reported elsewhere."""
        result = for_each(nodes, self._look, reads_hosts=True)
        self._before, self._before_ms = result.succeeded, _now_ms()
        self.unseen += [f"{OTHER_RUNS} and file systems before the start: {each}" for each in result.failed.values()]
        self.unseen += _unseen(self._before, "before the start")

    def look_after(self, nodes: Mapping[str, RunningNode], left: Iterable[str]) -> None:
        """Look at every reachable host on which nothing of the round may still run (`left`)."""
        there = {name: node for name, node in nodes.items() if name in self._before and name not in left}
        since = {name: found.host_s for name, found in self._before.items()}
        result = for_each(there, lambda node: self._look(node, since[node.plan.host]), reads_hosts=True)
        self._after, self._after_ms = result.succeeded, _now_ms()
        self.unseen += [
            f"{OTHER_RUNS} and file systems after the end: {name}: not looked at"
            for name in nodes
            if name not in self._after
        ]
        self.unseen += _unseen(self._after, "after the end")

    def _look(self, node: RunningNode, since_s: int | None = None) -> HostActivity:
        plan = self._plan
        folders = [plan.log_root_host, plan.code_dir_host, "/", "/tmp", "/var", *sorted(self._data)]
        return look(node.host, plan, self._runtime, since_s, folders)

    def findings(self) -> Iterator[PartFinding]:
        """The file systems that ran full or became read-only between both looks."""
        for host, found in self._after.items():
            yield from storage_findings(host, self._before[host].stored, found.stored, self._data)

    def remarks(self) -> Iterator[Remark]:
        """The cases of this run on other hosts; every other run that was seen, once per host, with its time."""
        if self._beside:
            yield Remark(kind=BESIDE, host=None, detail=f"{', '.join(self._beside)} on other hosts")
        for host in self._before:
            before, after = self._before[host], self._after.get(host)
            seen = dict.fromkeys(before.running, (self._before_ms, self._before_ms))
            for words in (*after.running, *after.begun) if after else ():
                seen[words] = (seen.get(words, (self._after_ms, 0))[0], self._after_ms)
            for words, (first, last) in seen.items():
                yield Remark(kind="another run", host=host, detail=words, from_ms=first, to_ms=last)


def _unseen(looks: Mapping[str, HostActivity], when: str) -> Iterator[str]:
    """Sentences on what hosts that answered did not tell."""
    for name, found in looks.items():
        if found.late:
            yield f"{OTHER_RUNS} and file systems {when}: {name}: {found.late}"
        for each in found.unstored:
            yield f"{FILE_SYSTEMS} {when}: {name}: {each}"


def integrity(
    nodes: Sequence[RunningNode], reports: Mapping[str, HostReport], neighbourhood: Neighbourhood, started_ms: int
) -> Integrity:
    """All known disturbances of a round, by host in node order, and what could not be observed."""
    remarks = [*neighbourhood.remarks(), *_shared_kernels(nodes, reports)]
    unwatched = list(neighbourhood.unseen)
    for node in nodes:
        host, report = node.plan.host, reports.get(node.plan.host)
        if report is not None and report.facts is not None:
            remarks += _load_before(host, report.facts, started_ms)
        remarks += [
            Remark(kind="outage", host=host, detail=detail, from_ms=first, to_ms=last)
            for first, last, detail in node.outages
        ]
        try:
            found = read_disturbances(node.outcome.folder / MONITOR_FILE, load=safe_json.load)
            seen = [*_of_monitor(node, found), *_foreign_load(node, found, nodes, reports)]
            remarks += _bounded(host, seen, found.left_out)
        except Exception as error:  # noqa: BLE001 - a host may send anything
            unwatched.append(f"{host}: load, clock and throttling: no monitor record ({type(error).__name__})")
    return Integrity(remarks=remarks, unwatched=unwatched)


def dead_monitor(node: RunningNode, summary: Mapping[str, Any] | None) -> Remark | None:
    """A monitor that ended without the record that it writes at its end, by the figures of what it left."""
    if summary is None or summary["complete"] or node.lost or node.silent or MONITOR_FILE in node.outcome.left_behind:
        return None
    last = summary["ended_ms"]
    moment = None if last is None else last - round(node.outcome.clock_offset * 1000)
    detail = "its monitor died before the round ended: nothing was sampled from then on"
    return Remark(kind="monitor", host=node.plan.host, detail=detail, from_ms=moment)


def _bounded(host: str, remarks: list[Remark], left_out: int) -> list[Remark]:
    """At most MAX_REMARKS of them, and the number of further ones; `left_out` were only counted."""
    beyond = max(0, len(remarks) - MAX_REMARKS) + left_out
    if not beyond:
        return remarks
    more = Remark(kind="more", host=host, detail=f"{beyond} more, in its monitor.jsonl")
    return [*remarks[:MAX_REMARKS], more]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _load_before(host: str, facts: HostFacts, started_ms: int) -> Iterator[Remark]:
    if facts.load is None or started_ms / 1000 - facts.checked_s > LOAD_IS_OF:
        return
    if facts.load / facts.cores > BUSY_LOAD:
        detail = f"load {facts.load:.1f} on {facts.cores} cores when the host was checked, before the run began"
        moment = int(facts.checked_s * 1000)
        yield Remark(kind="load before start", host=host, detail=detail, from_ms=moment, to_ms=moment)


def _shared_kernels(nodes: Sequence[RunningNode], reports: Mapping[str, HostReport]) -> Iterator[Remark]:
    """One remark for the hosts of a round that are containers or namespaces of one machine."""
    kernels: dict[str, list[str]] = {}
    for node in nodes:
        report = reports.get(node.plan.host)
        if report is not None and report.facts is not None and report.facts.identity.boot_id:
            kernels.setdefault(report.facts.identity.boot_id, []).append(node.plan.host)
    for boot_id, hosts in kernels.items():
        if len(hosts) > 1:
            detail = f"{', '.join(hosts)} run on one kernel (boot-id {boot_id}): what they exchange crosses no wire"
            yield Remark(kind=SHARED_KERNEL, host=hosts[0], detail=detail)


def _of_monitor(node: RunningNode, found: Disturbances) -> Iterator[Remark]:
    """Clock steps, throttling and foreign processes on the accelerators, in the head node's time."""
    host, offset = node.plan.host, round(node.outcome.clock_offset * 1000)

    def remark(kind: str, detail: str, first: int, last: int) -> Remark:
        return Remark(kind=kind, host=host, detail=detail, from_ms=first - offset, to_ms=last - offset)

    for step in found.clock_steps:
        yield remark("clock step", f"the clock jumped by {step.seconds:+.3f} s", step.from_ms, step.to_ms)
    for throttled in found.throttling.values():
        what = "the processors" if throttled.device is None else f"device {throttled.device}"
        detail = f"{what}: {throttled.reason}, in {throttled.samples} samples"
        yield remark("throttled", detail, throttled.from_ms, throttled.to_ms)
    for process in found.foreign.values():
        memory = "" if process.memory_bytes is None else f" with {process.memory_bytes / 1e9:.1f} GB"
        when = ", there before the round" if process.is_before else ""
        detail = f"process {process.pid} on device {process.device}{memory}{when}"
        yield remark("foreign accelerator process", detail, process.from_ms, process.to_ms)
    record = node.outcome.exit_record()
    known = {process.device for process in found.foreign.values()}
    for device, (moment, size) in found.used_bytes.items():
        is_before = record is not None and moment <= record.started_ms
        if is_before and device not in known and size > FOREIGN_DEVICE_BYTES:
            detail = f"{size / 1e9:.1f} GB of device {device} in use before the workload started"
            yield remark("foreign accelerator process", detail, moment, moment)


def _cpu_of_kernel(node: RunningNode, nodes: Sequence[RunningNode], reports: Mapping[str, HostReport]) -> float | None:
    """CPU seconds of the round's workloads on a node's kernel, which counts those of all its hosts; None if unknown."""
    sharing = [other for other in nodes if other is node or _same_kernel(node, other, reports)]
    records = [other.outcome.exit_record() for other in sharing]
    seconds = [record.cpu_s for record in records if record is not None and record.cpu_s is not None]
    return sum(seconds) if len(seconds) == len(sharing) else None


def _same_kernel(one: RunningNode, other: RunningNode, reports: Mapping[str, HostReport]) -> bool:
    facts = [report.facts if report else None for report in (reports.get(n.plan.host) for n in (one, other))]
    return facts[0] is not None and facts[1] is not None and share_a_kernel(facts[0].identity, facts[1].identity)


def _foreign_load(
    node: RunningNode, found: Disturbances, nodes: Sequence[RunningNode], reports: Mapping[str, HostReport]
) -> Iterator[Remark]:
    """CPU time of all processes while the workload ran, minus the workload's own."""
    record, own_s = node.outcome.exit_record(), _cpu_of_kernel(node, nodes, reports)
    if record is None or own_s is None or not found.cores:
        return
    # The first sample may come after the workload's start: its own time then counts in full, in its favour.
    first, last = max(record.started_ms, found.process_s[0][0]), min(record.finished_ms, found.process_s[-1][0])
    seconds = (last - first) / 1000
    everything = process_seconds(found.process_s, first, last)
    if everything is None or seconds < SHORTEST_S:
        return
    cores = (everything - own_s) / seconds
    if cores > max(FOREIGN_CORES, FOREIGN_SHARE * found.cores):
        detail = f"other processes had {cores:.1f} of {found.cores} cores on average while the workload ran"
        offset = round(node.outcome.clock_offset * 1000)
        yield Remark(
            kind="foreign load", host=node.plan.host, detail=detail, from_ms=first - offset, to_ms=last - offset
        )
