"""Runs one round: prepare → launch → watch → stop → collect → judge. A failure is a verdict, not an exception."""

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from common.shortening import few
from run_benchmarks.errors import EngineSilentError, HostError, InterruptedRunError, LinkLostError, RunTimeLimitError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection import code_folder
from run_benchmarks.inspection.boot import boot_of
from run_benchmarks.plan.plan import CasePlan, NodePlan, RoundPlan
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.rank_logs import rank_log_end
from run_benchmarks.results.records import RECORD_FILE, RoundRecord, Verdict, read_round, write_text
from run_benchmarks.results.seal import node_folder, unseal
from run_benchmarks.rounds.collect import collect_node
from run_benchmarks.rounds.ending import end_tasks, ends_of, remove_staging, remove_tasks, restore
from run_benchmarks.rounds.integrity import Neighbourhood
from run_benchmarks.rounds.launching import create_tasks, start_workload
from run_benchmarks.rounds.owed import is_owed
from run_benchmarks.rounds.post_mortem import examine
from run_benchmarks.rounds.preparing import prepare_node
from run_benchmarks.rounds.recording import RoundFacts, write_round
from run_benchmarks.rounds.watch import Watch, stop_workloads
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.state.context import RunContext, RunningNode
from run_benchmarks.state.journal import RoundCollecting, RoundStarted
from run_benchmarks.state.own_clock import own_clock


def put_code_right(node: RunningNode, context: RunContext, seconds: float) -> None:
    """Copy the code again if its folder changed since the check, or the host came back with a different one."""
    code, path = context.code, context.plan.code_dir_host
    node.host.connect()
    if found := code_folder.compare(node.host, code, path):
        node.warnings.append(code_folder.in_words(node.plan.host, found))
        code_folder.bring(node.host, code, path, deadline=seconds, cancel=context.interruption.signalled)


def note_changed_code(node: RunningNode, context: RunContext, *, is_resumed: bool) -> None:
    """Fail a round whose code was edited while it ran: it measured something else.

    An additional file counts, too: Python imports it in place of a module of the standard library.
    """
    found = code_folder.compare(node.host, context.code, context.plan.code_dir_host)
    facts = context.reports[node.plan.host].facts
    if is_resumed and facts is not None:
        found = found or code_folder.differences(context.code, facts.code_listing)
    node.code_digest = None if found else context.code.digest
    if found:
        problem = f"its code was changed during the round: {few(found, code_folder.NAMED)}"
        node.outcome.error = node.outcome.error or problem


STACKS_FILE = "stacks.txt"
STACKS_BYTES = 4 << 20  # of the end of each rank's log, searched for its stacks
STACK_LINE = re.compile(r"^(?:(?:Current thread|Thread) 0x[0-9a-f]+.*|  File \".*\", line \d+ in .*)$")


def write_stacks(folder: Path, nodes: Iterable[RunningNode]) -> None:
    """Write the stacks of all ranks of a round that timed out into one file of its folder."""
    parts = []
    for node in nodes:
        for rank in node.plan.ranks:
            found = stacks(rank_log_end(node.outcome.folder, rank, STACKS_BYTES))
            parts.append(f"rank {rank} on {node.plan.host}:\n{found or 'no stacks'}\n")
    write_text(folder / STACKS_FILE, "\n".join(parts))


def stacks(log: str) -> str:
    """The stacks that faulthandler wrote into a rank's log, "" without any."""
    return "\n".join(line for line in log.splitlines() if STACK_LINE.match(line))


PREPARE_SECONDS = 120.0
TASKS_GONE = "its tasks were gone when the run was resumed; it is run again"


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
        self._neighbourhood = Neighbourhood(context.plan, context.runtime, context.beside)
        self._slept = own_clock().slept
        self._phases: dict[str, float] = {}
        self.left: dict[str, list[RunningTask]] = {}  # by host, after the round: tasks that may still run there
        self._started_ms = time.time_ns() // 1_000_000
        self._nodes = {node.host: self._node(node) for node in self._plan.nodes}

    def _node(self, node: NodePlan) -> RunningNode:
        folder = self.folder / node_folder(node.host, node.node_rank)
        facts = self._context.reports[node.host].facts
        offset = facts.clock_offset if facts else 0.0
        outcome = NodeOutcome(node=node, folder=folder, clock_offset=offset)
        host = self._context.hosts[node.host]
        return RunningNode(plan=node, host=host, outcome=outcome, patience=self._context.patience)

    def lost_hosts(self) -> dict[str, str]:
        """Hosts that became unreachable, with the error."""
        return {name: node.outcome.error or "out of reach" for name, node in self._nodes.items() if node.lost}

    @property
    def owed(self) -> list[str]:
        """Hosts whose files could not be collected, and still can be; none of a round that never began."""
        return [host for host, node in self._nodes.items() if node.is_owed and self._begun]

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
            self._fail(error)
        return self._end()

    def resume(self, started: RoundStarted, collecting: RoundCollecting | None = None) -> RoundRecord:
        """Take over a round that another controller started; if tasks are gone, collect what they left: ABORTED.

        `collecting`: how its workloads ended, if they did before that controller was killed. Their files are collected,
        again if that had begun; an existing record was the last step before the removal of the tasks.
        """
        unseal(self._context.result_dir)
        self._make_folders()
        self._master_port, self._started_ms = started.master_port, started.time_ms
        self._resumed = self._begun = True
        if collecting is not None:
            return self._resume_collection(collecting)
        try:
            with self._phase("attach"):
                if reason := self._attach(started.boot_ids):
                    self._ended_early = (Verdict.ABORTED, reason)
                    return self._end()
            with self._phase("run"):
                elapsed = time.time() - started.time_ms / 1000
                watch = Watch(self._context, self._case, self._plan.index, self._nodes, elapsed)
                self._ended_early = watch.run() or self._gone_meanwhile()
        except InterruptedRunError as error:
            self._ended_early = (Verdict.ABORTED, str(error))
        except RunTimeLimitError as error:
            self._ended_early = (Verdict.TIMEOUT, str(error))
        except HostError as error:
            self._fail(error)
        return self._end()

    def _gone_meanwhile(self) -> tuple[Verdict, str] | None:
        """How a round ends that was taken over while its tasks were being removed; None if they told their ends."""
        answering = {host: node for host, node in self._nodes.items() if not (node.lost or node.silent)}
        mute = {host: node for host, node in answering.items() if node.outcome.exit_code is None}
        asked = for_each(mute, lambda node: node.workload is not None and node.workload.exists(), reads_hosts=True)
        return (Verdict.ABORTED, TASKS_GONE) if False in asked.succeeded.values() else None

    def _fail(self, error: HostError) -> None:
        """End the round for a host's error, or for what kept the controller from waiting longer for that host."""
        interruption = self._context.interruption
        if self._nodes[error.host].outcome.error is None:
            self._note_broken([error])
        if interruption.is_set():
            self._ended_early = (Verdict.ABORTED, interruption.reason)
        elif interruption.time_is_up():
            self._ended_early = (Verdict.TIMEOUT, interruption.time_limit_reason)

    def _note_broken(self, errors: Iterable[HostError]) -> None:
        """Note why nodes failed before their ranks ran, and what their hosts say of it."""
        broken = {error.host: (self._nodes[error.host], error) for error in errors}

        def note(item: tuple[RunningNode, HostError]) -> None:
            node, error = item
            node.outcome.error = str(error)
            if not node.lost and node.answers() and isinstance(error, EngineSilentError):
                node.silence = error.detail
            node.outcome.lost = node.lost
            node.outcome.silent_ms = node.outcome.silent_ms or time.time_ns() // 1_000_000

        for_each(broken, note)
        examine({host: node for host, (node, _) in broken.items()})

    def _resume_collection(self, collecting: RoundCollecting) -> RoundRecord:
        restore(self._nodes, collecting.nodes)
        self._ended_early, self._phases = collecting.early_end, dict(collecting.phase_seconds)
        with self._phase("attach"):
            attached = for_each(self._nodes, lambda node: node.persist(self._attach_node), reads_hosts=True)
            for host, error in attached.failed.items():
                node = self._nodes[host]
                node.silence = error.detail if isinstance(error, HostError) and node.answers() else ""
                node.outcome.error = node.outcome.error or str(error)
        record = read_round(self.folder)
        if record is None:
            return self._end()
        for part in record.nodes:
            self._nodes[part.host].is_owed = part.incomplete
        remove_tasks(self._nodes, self.left)
        return record

    def _make_folders(self) -> None:
        remove_staging(self.folder)
        for node in self._nodes.values():
            node.outcome.folder.mkdir(mode=0o750, parents=True, exist_ok=True)

    def _attach(self, boot_ids: Mapping[str, str]) -> str:
        """Find the tasks by their names; returns why the round cannot go on, "": every started workload exists."""
        found = for_each(self._nodes, lambda node: node.persist(self._attach_node), reads_hosts=True).raise_first()
        rebooted = [host for host, node in self._nodes.items() if node.boot_id != boot_ids.get(host, node.boot_id)]
        if rebooted:
            were = "was" if len(rebooted) == 1 else "were"
            return f"{', '.join(rebooted)} {were} restarted while the round ran; it is run again"
        return "" if all(found.values()) else TASKS_GONE

    def _attach_node(self, node: RunningNode) -> bool:
        runtime = self._context.runtime
        node.monitor = runtime.attach(node.host, node.plan, node.plan.monitor)
        node.workload = runtime.attach(node.host, node.plan, node.plan.workload)
        node.host.connect()
        node.boot_id = boot_of(node.host)
        return node.workload.exists()

    def _end(self) -> RoundRecord:
        """Stop, collect, judge, record."""
        with self._phase("stop"):
            stop_workloads(self._nodes)
            self._note_collecting()
            self.left = end_tasks(self._nodes)
        with self._phase("collect"):
            self._neighbourhood.look_after(self._nodes, self.left)
            self._collect(self._nodes)
        return self._record()

    def _record(self, recorded: RoundRecord | None = None) -> RoundRecord:
        """Judge and record the round, whose record so far is `recorded`, and remove its tasks."""
        if self._ended_early is not None and self._ended_early[0] is Verdict.TIMEOUT:
            write_stacks(self.folder, self._nodes.values())
        facts = RoundFacts(
            index=self._plan.index,
            attempt=self._plan.attempt,
            started_ms=self._started_ms,
            phase_seconds=self._phases,
            master_port=self._master_port,
            ended_early=self._ended_early,
            neighbourhood=self._neighbourhood,
            recorded=recorded,
        )
        nodes = list(self._nodes.values())
        if slept := own_clock().slept - self._slept:
            nodes[0].warnings.append(f"the controller itself was suspended for {slept:.0f} s, which no limit counts")
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
        """Run an action on every node in parallel, across outages; then raise a signal, or the first node's error."""
        done = for_each(self._nodes, lambda node: node.persist(action), reads_hosts=True)
        if self._context.interruption.is_set():
            self._context.interruption.check()
        self._note_broken(error for error in done.failed.values() if isinstance(error, HostError))
        done.raise_first()

    def _prepare(self) -> None:
        seconds, case = self._context.interruption.seconds_left(PREPARE_SECONDS), self._case.case_file

        def prepare(node: RunningNode) -> None:
            is_master = node.plan.host == self._plan.master
            port_from = self._plan.port_from if is_master else None
            node.host.connect()
            node.boot_id = node.boot_id or boot_of(node.host)
            put_code_right(node, self._context, seconds)
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
            boot_ids={host: node.boot_id for host, node in self._nodes.items() if node.boot_id},
        )
        self._started_ms = started.time_ms
        self._note(started)
        self._begun = True

    def _launch(self) -> None:
        """Start monitors before any workload; start the workloads together once every host is ready."""
        port = self._master_port
        assert port is not None
        self._each(lambda node: create_tasks(node, self._context, self._plan, port))
        self._context.interruption.check()
        self._each(start_workload)

    def _collect(self, nodes: Mapping[str, RunningNode]) -> None:
        port = self._master_port or self._plan.port_from

        def collect(node: RunningNode) -> None:
            if node.lost:
                node.outcome.incomplete = True
                raise LinkLostError(node.plan.host, "out of reach")
            node.persist(bring)

        def bring(node: RunningNode) -> None:
            said: list[str] = []
            collect_node(
                node.host,
                node.outcome,
                self._case.framework,
                port,
                config=self._case.config,
                limits=self._context.collect_limits,
                warn=said.append,
            )
            node.warnings += said
            node.is_owed = False
            note_changed_code(node, self._context, is_resumed=self._resumed)

        failed = for_each(nodes, collect, reads_hosts=True).failed
        examine({host: nodes[host] for host in failed}, are_stopped=True)
        for host, error in failed.items():
            node = nodes[host]
            node.is_owed = is_owed(error)
            node.outcome.error = node.outcome.error or f"not collected: {error}"
            node.warnings.append(f"{host}: not collected ({error}): {', '.join(node.outcome.missing()) or 'a part'}")
