"""One round: prepare → launch → watch → stop → collect → judge. What went wrong is a verdict, not an exception."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from run_benchmarks.check import HostReport, free_port
from run_benchmarks.collect import collect_node
from run_benchmarks.console import LOG
from run_benchmarks.errors import ClusterDynoError, HostError, InterruptedRunError, LinkLostError, TaskError
from run_benchmarks.facts import INFINIBAND
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.interruption import Interruption
from run_benchmarks.plan import POWERCAP_MOUNTS, CasePlan, NodePlan, Plan, RoundPlan
from run_benchmarks.progress import Progress
from run_benchmarks.results.judge import NodeOutcome, judge
from run_benchmarks.results.rank_logs import rank_log_name
from run_benchmarks.results.records import NodeRecord, RoundRecord, Verdict, mask_secrets, write_record
from run_benchmarks.runtimes.base import Bound, RunningTask, Runtime

PREPARE_SECONDS = 120.0
WAIT_SECONDS = 20.0
PEER_GRACE_SECONDS = 5.0
STOP_GRACE_SECONDS = 5.0
LINK_SECONDS = 120.0
RECONNECT_SECONDS = 2.0
PREPARE = r"""
set -eu
umask 027
mkdir -p "$1"
if [ "$2" = 1 ]; then
  sync; (echo 3 > /proc/sys/vm/drop_caches) 2>/dev/null || echo "caches not cleared"
fi
cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | awk '$4 == "0A" {n = split($2, a, ":"); print "listening " a[n]}'
"""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What every round of a run shares."""

    plan: Plan
    hosts: Mapping[str, Host]
    reports: Mapping[str, HostReport]
    runtime: Runtime
    image_ids: Mapping[str, str]
    result_dir: Path
    interruption: Interruption


@dataclass(kw_only=True)
class _Node:
    """One node of the running round."""

    plan: NodePlan
    host: Host
    outcome: NodeOutcome
    workload: RunningTask | None = None
    monitor: RunningTask | None = None
    done: bool = False
    warnings: list[str] = field(default_factory=list)


class Round:
    """Runs one round of one case; use once."""

    def __init__(self, context: RunContext, case: CasePlan, plan: RoundPlan) -> None:
        self._context, self._case, self._plan = context, case, plan
        self.folder = context.result_dir / case.folder / f"round{plan.index}"
        self._ended_early: tuple[Verdict, str] | None = None
        self._master_port: int | None = None
        self._phases: dict[str, float] = {}
        self._started_ms = time.time_ns() // 1_000_000
        self._nodes = {node.host: self._node(node) for node in plan.nodes}

    def _node(self, node: NodePlan) -> _Node:
        folder = self.folder / f"{node.host}_noderank{node.node_rank}"
        facts = self._context.reports[node.host].facts
        offset = facts.clock_offset if facts else 0.0
        outcome = NodeOutcome(node=node, folder=folder, clock_offset=offset)
        return _Node(plan=node, host=self._context.hosts[node.host], outcome=outcome)

    def run(self) -> RoundRecord:
        """Run the round and write round.json; raises only for defects and an unwritable result folder."""
        for node in self._nodes.values():
            node.outcome.folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        try:
            with self._phase("prepare"):
                self._prepare()
            with self._phase("launch"):
                self._launch()
            with self._phase("run"):
                self._watch()
        except InterruptedRunError as error:
            self._ended_early = (Verdict.ABORTED, str(error))
        except HostError as error:
            self._nodes[error.host].outcome.error = str(error)
        with self._phase("stop"):
            self._stop_all()
        with self._phase("collect"):
            self._collect()
        record = self._record()
        write_record(self.folder / "round.json", record)
        return record

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        self._context.interruption.check() if name in ("prepare", "launch", "run") else None
        started = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] = round(time.monotonic() - started, 3)

    def _each(self, action: Callable[[_Node], None]) -> None:
        """Do something on every node at once; the first error in node order is raised after all have ended."""
        for_each(self._nodes, action).raise_first()

    def _prepare(self) -> None:
        listening: dict[str, frozenset[int]] = {}

        def prepare(node: _Node) -> None:
            clear = "1" if self._context.plan.clear_caches else "0"
            node.host.connect()
            argv = ["sh", "-c", PREPARE, "sh", node.plan.log_dir_host, clear]
            answer = node.host.run(argv, deadline=PREPARE_SECONDS).stdout.splitlines()
            ports = [line.split()[1] for line in answer if line.startswith("listening ")]
            listening[node.plan.host] = frozenset(int(port, 16) for port in ports)
            if "caches not cleared" in answer:
                node.warnings.append(f"{node.plan.host}: CLEAR_CACHES needs root there: caches were not cleared")

        self._each(prepare)
        self._master_port = free_port(listening[self._plan.master], self._plan.port_from)
        if self._master_port is None:
            raise TaskError(self._plan.master, f"no free master port from {self._plan.port_from} on")

    def _launch(self) -> None:
        """Monitors run before any workload starts; workloads start together once every host is ready."""
        self._each(self._create)
        self._context.interruption.check()
        self._each(lambda node: node.workload.start() if node.workload else None)

    def _create(self, node: _Node) -> None:
        bound = self._bind(node)
        facts = self._context.reports[node.plan.host].facts
        watching = replace(bound, mounts=POWERCAP_MOUNTS) if facts and facts.has_powercap else bound
        node.monitor = self._context.runtime.create(node.host, node.plan, node.plan.monitor, watching)
        node.monitor.start()
        node.workload = self._context.runtime.create(node.host, node.plan, node.plan.workload, bound)

    def _bind(self, node: _Node) -> Bound:
        report = self._context.reports[node.plan.host]
        facts = report.facts
        assert facts is not None and self._master_port is not None
        names = [peer.host for peer in self._plan.nodes] if len(self._plan.nodes) > 1 else []
        known = {
            "docker_version": report.docker_version,
            "image_id": self._context.image_ids.get(node.plan.image or ""),
        }
        return Bound(
            master_port=self._master_port,
            user=f"{facts.uid}:{facts.gid}",
            extra_hosts={name: self._context.hosts[name].address for name in names if name not in facts.resolves},
            devices=(INFINIBAND,) if facts.has_infiniband and len(names) > 1 else (),
            facts={key: value for key, value in known.items() if value},
        )

    def _watch(self) -> None:
        """Wait for every node; after the first failure, the time limit or an interruption, stop the others."""
        ended: queue.Queue[_Node] = queue.Queue()
        threads = [
            threading.Thread(target=self._wait_for, args=(node, ended), name=f"wait-{node.plan.host}", daemon=True)
            for node in self._nodes.values()
        ]
        deadline = time.monotonic() + self._case.time_limit
        stop_at: float | None = None
        with self._follow() as progress:
            for thread in threads:
                thread.start()
            while not all(node.done for node in self._nodes.values()):
                with contextlib.suppress(queue.Empty):
                    node = ended.get(timeout=0.1)
                    node.done = True
                    if node.outcome.exit_code != 0 and stop_at is None:
                        stop_at = time.monotonic() + PEER_GRACE_SECONDS
                progress.tick()
                self._ended_early = self._ended_early or self._early_end(deadline)
                if self._ended_early is not None or (stop_at is not None and time.monotonic() >= stop_at):
                    break
        self._stop_workloads()
        for node, thread in zip(self._nodes.values(), threads, strict=True):
            thread.join(STOP_GRACE_SECONDS + WAIT_SECONDS)
            node.done = not thread.is_alive()

    def _early_end(self, deadline: float) -> tuple[Verdict, str] | None:
        if self._context.interruption.is_set():
            return Verdict.ABORTED, self._context.interruption.reason
        if time.monotonic() >= deadline:
            return Verdict.TIMEOUT, f"did not end within its time limit of {self._case.time_limit:g} s"
        return None

    def _wait_for(self, node: _Node, ended: queue.Queue[_Node]) -> None:
        try:
            node.outcome.exit_code = self._exit_code(node)
        except ClusterDynoError as error:
            node.outcome.error = str(error)
        finally:
            ended.put(node)

    def _exit_code(self, node: _Node) -> int:
        """Wait on one node, across lost connections; LinkLostError where it stays lost for LINK_SECONDS."""
        assert node.workload is not None
        lost_since: float | None = None
        while True:
            try:
                if lost_since is not None:
                    node.host.connect()
                code = node.workload.wait(WAIT_SECONDS)
                lost_since = None
                if code is not None:
                    return code
            except (LinkLostError, HostError) as error:
                if isinstance(error, TaskError):
                    raise
                lost_since = lost_since or time.monotonic()
                if time.monotonic() - lost_since > LINK_SECONDS:
                    raise LinkLostError(node.plan.host, f"no connection for {LINK_SECONDS:g} s: {error}") from error
                LOG.warning("%s; trying to reconnect", error)
                time.sleep(RECONNECT_SECONDS)

    @contextlib.contextmanager
    def _follow(self) -> Iterator[Progress]:
        """Feed rank 0's log into a progress display; a break of the stream costs the display, never the round."""
        first = self._nodes[self._plan.master]
        path = f"{first.plan.log_dir_host}/{rank_log_name(0)}"
        cancel = threading.Event()
        progress = Progress(self._case.name, self._plan.index, len(self._case.rounds))
        argv = ["tail", "-n", "+1", "-s", "0.5", "-F", path]

        def follow() -> None:
            with contextlib.suppress(HostError):
                limit = self._case.time_limit + WAIT_SECONDS
                first.host.run(argv, deadline=limit, on_stdout=progress.feed, check=False, cancel=cancel)

        thread = threading.Thread(target=follow, name="follow", daemon=True)
        thread.start()
        try:
            with progress:
                yield progress
        finally:
            cancel.set()
            thread.join(STOP_GRACE_SECONDS)

    def _stop_workloads(self) -> None:
        running = {host: node for host, node in self._nodes.items() if node.workload and not node.done}

        def stop(node: _Node) -> None:
            node.outcome.stopped = node.outcome.error is None
            assert node.workload is not None
            node.workload.stop(STOP_GRACE_SECONDS)

        for host, error in for_each(running, stop).failed.items():
            self._nodes[host].warnings.append(f"{host}: could not be stopped: {error}")

    def _stop_all(self) -> None:
        """End the workloads, then the monitors that watched them; take the output of both and remove them."""

        self._stop_workloads()
        tasks = {
            f"{node.plan.host} {what}": (node, what, task)
            for node in self._nodes.values()
            for what, task in (("workload", node.workload), ("monitor", node.monitor))
            if task is not None
        }

        def finish(item: tuple[_Node, str, RunningTask]) -> None:
            node, what, task = item
            output = task.finish(STOP_GRACE_SECONDS)
            if what == "workload":
                node.outcome.output = output
            elif output.strip():
                node.warnings.append(f"{node.plan.host}: monitor: {output.strip()[-500:]}")

        for key, error in for_each(tasks, finish).failed.items():
            tasks[key][0].warnings.append(f"{key}: not removed: {error}")

    def _collect(self) -> None:
        port = self._master_port or self._plan.port_from

        def collect(node: _Node) -> None:
            node.outcome.files = collect_node(node.host, node.plan, node.outcome, self._case.framework, port)

        for host, error in for_each(self._nodes, collect).failed.items():
            self._nodes[host].outcome.error = self._nodes[host].outcome.error or f"not collected: {error}"

    def _record(self) -> RoundRecord:
        judgement = judge([node.outcome for node in self._nodes.values()], ended_early=self._ended_early)
        return RoundRecord(
            run_id=self._context.plan.run_id,
            case=self._case.name,
            round=self._plan.index,
            verdict=judgement.verdict,
            reason=judgement.reason,
            first_failure=judgement.first_failure,
            warnings=[warning for node in self._nodes.values() for warning in node.warnings],
            started_ms=self._started_ms,
            finished_ms=time.time_ns() // 1_000_000,
            phase_seconds=self._phases,
            master_port=self._master_port,
            world_size=self._case.nnodes * self._case.nproc,
            metrics=judgement.metrics,
            steps=judgement.steps,
            nodes=[self._node_record(node) for node in self._nodes.values()],
        )

    def _node_record(self, node: _Node) -> NodeRecord:
        exit_record = node.outcome.exit_record()
        return NodeRecord(
            host=node.plan.host,
            node_rank=node.plan.node_rank,
            ranks=list(node.plan.ranks),
            exit_code=node.outcome.exit_code,
            argv=list(node.plan.workload.bound_argv(self._master_port or self._plan.port_from)),
            environment=mask_secrets(node.plan.workload.environment),
            image=node.plan.image,
            image_id=self._context.image_ids.get(node.plan.image or ""),
            interface=exit_record.interface if exit_record else None,
            clock_offset_seconds=round(node.outcome.clock_offset, 4),
            files=node.outcome.files,
            missing=node.outcome.missing(),
            monitor=node.outcome.monitor_summary(),
        )
