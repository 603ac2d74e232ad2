"""Runs one round: prepare → launch → watch → stop → collect → judge. A failure is a verdict, not an exception."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator

from run_benchmarks.errors import HostError, InterruptedRunError, LinkLostError, RunTimeLimitError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection import code_folder
from run_benchmarks.inspection.facts import INFINIBAND
from run_benchmarks.inspection.power_meters import with_power_meters
from run_benchmarks.plan.plan import CasePlan, NodePlan, RoundPlan
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.rank_logs import rank_log_end
from run_benchmarks.results.records import RECORD_FILE, RoundRecord, Verdict, read_round, write_text
from run_benchmarks.results.seal import node_folder
from run_benchmarks.rounds.collect import collect_node
from run_benchmarks.rounds.ending import end_tasks, ends_of, remove_staging, remove_tasks, restore
from run_benchmarks.rounds.integrity import Neighbourhood
from run_benchmarks.rounds.preparing import prepare_node
from run_benchmarks.rounds.recording import RoundFacts, write_round
from run_benchmarks.rounds.stall import stacks
from run_benchmarks.rounds.watch import Watch, stop_workloads
from run_benchmarks.runtimes.base import Bound, RunningTask
from run_benchmarks.state.context import RunContext, RunningNode
from run_benchmarks.state.journal import RoundCollecting, RoundStarted

PREPARE_SECONDS = 120.0
TASKS_GONE = "its tasks were gone when the run was resumed; it is run again"
STACKS_FILE = "stacks.txt"
STACKS_BYTES = 4 << 20  # of the end of each rank's log, searched for its stacks


class RoundRunner:
    """Runs one attempt at one round of one case; use once.

    `note` is called before anything starts on a host, and when its workloads have ended.
    """

    def __init__(
        self,
        context: RunContext,
        case: CasePlan,
        plan: RoundPlan,
        *,
        note: Callable[[RoundStarted | RoundCollecting], None],
    ) -> None:
        self._context, self._case, self._plan = context, case, plan
        self._note, self._begun = note, False
        self.folder = context.result_dir / case.folder / plan.folder
        self._ended_early: tuple[Verdict, str] | None = None
        self._master_port: int | None = None
        self._resumed = False
        self._neighbourhood = Neighbourhood(context.plan, context.runtime)
        self._phases: dict[str, float] = {}
        self.left: dict[str, list[RunningTask]] = {}  # by host, after the round: tasks that may still run there
        self._started_ms = time.time_ns() // 1_000_000
        self._nodes = {node.host: self._node(node) for node in self._plan.nodes}

    def _node(self, node: NodePlan) -> RunningNode:
        folder = self.folder / node_folder(node.host, node.node_rank)
        facts = self._context.reports[node.host].facts
        offset = facts.clock_offset if facts else 0.0
        outcome = NodeOutcome(node=node, folder=folder, clock_offset=offset)
        return RunningNode(plan=node, host=self._context.hosts[node.host], outcome=outcome)

    def lost_hosts(self) -> dict[str, str]:
        """Hosts that became unreachable, with the error."""
        return {name: node.outcome.error or "out of reach" for name, node in self._nodes.items() if node.lost}

    def run(self) -> RoundRecord:
        """Run the round and write round.json; fails only for defects and an unwritable result folder."""
        self._make_folders()
        try:
            with self._phase("prepare"):
                self._prepare()
            with self._phase("launch"):
                self._launch()
            with self._phase("run"):
                self._ended_early = Watch(self._context, self._case, self._plan.index, self._nodes).run()
        except InterruptedRunError as error:
            self._ended_early = (Verdict.ABORTED, str(error))
        except RunTimeLimitError as error:
            self._ended_early = (Verdict.TIMEOUT, str(error))
        except HostError as error:
            node = self._nodes[error.host]
            node.outcome.error = str(error)
            node.lost = not node.answers()
            if self._context.interruption.time_is_up():
                self._ended_early = (Verdict.TIMEOUT, self._context.interruption.time_limit_reason)
        return self._end()

    def resume(self, started: RoundStarted, collecting: RoundCollecting | None = None) -> RoundRecord:
        """Take over a round that another controller started; if tasks are gone, collect what they left: ABORTED.

        `collecting`: how its workloads ended, if they did before that controller was killed. Their files are collected,
        again if that had begun; an existing record was the last step before the removal of the tasks.
        """
        self._make_folders()
        self._master_port, self._started_ms = started.master_port, started.time_ms
        self._resumed = self._begun = True
        if collecting is not None:
            return self._resume_collection(collecting)
        try:
            with self._phase("attach"):
                if not self._attach():
                    self._ended_early = (Verdict.ABORTED, TASKS_GONE)
                    return self._end()
            with self._phase("run"):
                elapsed = time.time() - started.time_ms / 1000
                watch = Watch(self._context, self._case, self._plan.index, self._nodes, elapsed)
                self._ended_early = watch.run()
        except InterruptedRunError as error:
            self._ended_early = (Verdict.ABORTED, str(error))
        except RunTimeLimitError as error:
            self._ended_early = (Verdict.TIMEOUT, str(error))
        except HostError as error:
            self._nodes[error.host].outcome.error = str(error)
        return self._end()

    def _resume_collection(self, collecting: RoundCollecting) -> RoundRecord:
        restore(self._nodes, collecting.nodes)
        self._ended_early, self._phases = collecting.early_end, dict(collecting.phase_seconds)
        with self._phase("attach"):
            for host, error in for_each(self._nodes, self._attach_node).failed.items():
                node = self._nodes[host]
                node.silent = node.answers()
                node.outcome.error = node.outcome.error or str(error)
        record = read_round(self.folder)
        if record is None:
            return self._end()
        remove_tasks(self._nodes, self.left)
        return record

    def _make_folders(self) -> None:
        remove_staging(self.folder)
        for node in self._nodes.values():
            node.outcome.folder.mkdir(mode=0o750, parents=True, exist_ok=True)

    def _attach(self) -> bool:
        """Find the tasks by their names; returns whether every node's workload was started and exists."""
        return all(for_each(self._nodes, self._attach_node).raise_first().values())

    def _attach_node(self, node: RunningNode) -> bool:
        node.host.connect()
        runtime = self._context.runtime
        node.monitor = runtime.attach(node.host, node.plan, node.plan.monitor)
        node.workload = runtime.attach(node.host, node.plan, node.plan.workload)
        return node.workload.exists()

    def _end(self) -> RoundRecord:
        """Stop, collect, judge, record."""
        with self._phase("stop"):
            stop_workloads(self._nodes)
            self._note_collecting()
            self.left = end_tasks(self._nodes)
        with self._phase("collect"):
            self._neighbourhood.look_after(self._nodes, self.left)
            self._collect()
        self._write_stacks()
        facts = RoundFacts(
            index=self._plan.index,
            attempt=self._plan.attempt,
            started_ms=self._started_ms,
            phase_seconds=self._phases,
            master_port=self._master_port,
            ended_early=self._ended_early,
            neighbourhood=self._neighbourhood,
        )
        nodes = list(self._nodes.values())
        record = write_round(self.folder / RECORD_FILE, self._context, self._case, nodes, facts)
        remove_tasks(self._nodes, self.left)
        return record

    def _note_collecting(self) -> None:
        """Record the ends of all tasks: a controller that takes over need not wait from here on."""
        if self._begun:
            self._note(
                RoundCollecting(
                    case=self._case.name,
                    round=self._plan.index,
                    attempt=self._plan.attempt,
                    nodes=ends_of(self._nodes),
                    early_end=self._ended_early,
                    phase_seconds=self._phases,
                )
            )

    def _write_stacks(self) -> None:
        """Write the stacks of all ranks of a round that timed out into one file."""
        if self._ended_early is None or self._ended_early[0] is not Verdict.TIMEOUT:
            return
        parts = []
        for node in self._nodes.values():
            for rank in node.plan.ranks:
                found = stacks(rank_log_end(node.outcome.folder, rank, STACKS_BYTES))
                parts.append(f"rank {rank} on {node.plan.host}:\n{found or 'no stacks'}\n")
        write_text(self.folder / STACKS_FILE, "\n".join(parts))

    @contextlib.contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        if name in ("prepare", "launch", "run"):
            self._context.interruption.check()
        started = time.monotonic()
        try:
            yield
        finally:
            self._phases[name] = round(time.monotonic() - started, 3)

    def _each(self, action: Callable[[RunningNode], None]) -> None:
        """Run an action on every node in parallel; the first error in node order is raised after all have ended."""
        for_each(self._nodes, action).raise_first()

    def _prepare(self) -> None:
        seconds, case = self._context.interruption.seconds_left(PREPARE_SECONDS), self._case.case_file

        def prepare(node: RunningNode) -> None:
            is_master = node.plan.host == self._plan.master
            port_from = self._plan.port_from if is_master else None
            self._put_code_right(node, seconds)
            port = prepare_node(node, self._context.plan, case=case, port_from=port_from, deadline=seconds)
            self._master_port = port if is_master else self._master_port

        self._each(prepare)
        self._neighbourhood.look_before(self._nodes)
        assert self._master_port is not None
        hosts = list(self._context.plan.hosts)
        started = RoundStarted(
            case=self._case.name,
            round=self._plan.index,
            attempt=self._plan.attempt,
            master_port=self._master_port,
            hosts=hosts,
        )
        self._started_ms = started.time_ms
        self._note(started)
        self._begun = True

    def _put_code_right(self, node: RunningNode, seconds: float) -> None:
        """Bring the code again if its folder was changed since the check, or the host came back with another one."""
        code, path = self._context.code, self._context.plan.code_dir_host
        node.host.connect()
        if found := code_folder.compare(node.host, code, path):
            node.warnings.append(code_folder.in_words(node.plan.host, found))
            code_folder.bring(node.host, code, path, deadline=seconds)

    def _note_changed_code(self, node: RunningNode) -> None:
        """Fail a round whose code was edited while it ran: it measured something else. Additional files are a
        warning.
        """
        found = code_folder.compare(node.host, self._context.code, self._context.plan.code_dir_host)
        facts = self._context.reports[node.plan.host].facts
        if self._resumed and facts is not None:
            found = found or code_folder.differences(self._context.code, facts.code_listing)
        node.code_digest = None if found else self._context.code.digest
        if any(not difference.startswith(code_folder.ADDED) for difference in found):
            problem = f"its code was changed during the round: {code_folder.few(found)}"
            node.outcome.error = node.outcome.error or problem
        elif found:
            node.warnings.append(
                f"{node.plan.host}: files came into its code during the round: {code_folder.few(found)}"
            )

    def _launch(self) -> None:
        """Start monitors before any workload; start the workloads together once every host is ready."""
        self._each(self._create)
        self._context.interruption.check()
        self._each(lambda node: node.workload.start() if node.workload else None)

    def _create(self, node: RunningNode) -> None:
        bound = self._bind(node)
        facts = self._context.reports[node.plan.host].facts
        assert facts is not None
        watching = with_power_meters(bound, facts)
        node.monitor = self._context.runtime.create(node.host, node.plan, node.plan.monitor, watching)
        node.monitor.start()
        node.workload = self._context.runtime.create(node.host, node.plan, node.plan.workload, bound)

    def _bind(self, node: RunningNode) -> Bound:
        report = self._context.reports[node.plan.host]
        facts = report.facts
        assert facts is not None and self._master_port is not None
        names = [peer.host for peer in self._plan.nodes] if len(self._plan.nodes) > 1 else []
        image_id = self._context.image_id(node.plan)
        known = {
            "docker_version": report.docker_version,
            "image_id": image_id,
        }
        return Bound(
            master_port=self._master_port,
            image=image_id,
            user=f"{facts.uid}:{facts.gid}",
            extra_hosts={name: self._context.hosts[name].address for name in names if name not in facts.resolves},
            devices=(INFINIBAND,) if facts.has_infiniband and len(names) > 1 else (),
            facts={key: value for key, value in known.items() if value},
        )

    def _collect(self) -> None:
        port = self._master_port or self._plan.port_from

        def collect(node: RunningNode) -> None:
            if node.lost:
                node.outcome.incomplete = True
                raise LinkLostError(node.plan.host, "out of reach")
            collect_node(
                node.host,
                node.plan,
                node.outcome,
                self._case.framework,
                port,
                config=self._case.config,
                limits=self._context.collect_limits,
                warn=node.warnings.append,
            )
            self._note_changed_code(node)

        for host, error in for_each(self._nodes, collect).failed.items():
            node = self._nodes[host]
            node.outcome.error = node.outcome.error or f"not collected: {error}"
            node.warnings.append(f"{host}: not collected ({error}): {', '.join(node.outcome.missing()) or 'a part'}")
