"""Waits for the end of a round: every node's exit code, the time limit, a stall, a lost host, an interruption."""

import contextlib
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping

from protocol.node_record import NODE_EXIT_FILE
from run_benchmarks.console.console import LOG
from run_benchmarks.console.progress import LiveProgress
from run_benchmarks.errors import ClusterDynoError, EngineSilentError, HostError, LinkLostError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.outages import FINAL, RECONNECT_SECONDS, Patience, Reconnecting
from run_benchmarks.plan.plan import CasePlan
from run_benchmarks.results.rank_logs import rank_log_name
from run_benchmarks.results.records import Verdict
from run_benchmarks.rounds.post_mortem import examine, recorded_end
from run_benchmarks.rounds.stall import StallWatch
from run_benchmarks.state.context import HEARTBEAT_SECONDS, RunContext, RunningNode, refusal
from run_benchmarks.state.own_clock import own_clock

WAIT_SECONDS = 20.0
PEER_GRACE_SECONDS = 5.0
STOP_GRACE_SECONDS = 5.0
STACKS_SECONDS = 2.0  # for the ranks to write their stacks


class Watch:
    """Watches the running workloads of one round; use once.

    `elapsed` is how many seconds the round has already run (for a resumed one); less than 0, by a clock that was set
    back, is 0. Limits count while the controller runs.
    """

    def __init__(
        self, context: RunContext, case: CasePlan, index: int, nodes: Mapping[str, RunningNode], elapsed: float = 0.0
    ) -> None:
        self._context, self._case, self._index, self._nodes = context, case, index, nodes
        self._clock = own_clock()
        self._deadline = self._clock.now() + case.time_limit - max(0.0, elapsed)
        self._ended: queue.Queue[RunningNode] = queue.Queue()
        self._over = threading.Event()
        self._heard: dict[str, float] = {}  # by host: when its task last answered, by the clock

    def run(self) -> tuple[Verdict, str] | None:
        """Wait, then stop what still runs; verdict and reason if the controller itself ended the round."""
        threads = [
            threading.Thread(target=self._wait_for, args=(node,), name=f"wait-{node.plan.host}", daemon=True)
            for node in self._nodes.values()
        ]
        stalls = StallWatch(self._nodes.values(), self._case.stall_limit, self._clock.now, lambda: self._clock.slept)
        with stalls as stall, self._follow() as progress:
            for thread in threads:
                thread.start()
            early_end = self._until_the_end(progress, stall)
            if _broke(self._nodes.values(), early_end):
                stall.look_once_more()
                examine(self._nodes)
        if early_end is not None and early_end[0] is Verdict.TIMEOUT:
            self._take_stacks()
        stop_workloads(self._nodes)
        self._over.set()
        for node, thread in zip(self._nodes.values(), threads, strict=True):
            thread.join(STOP_GRACE_SECONDS + WAIT_SECONDS)
            node.done = not thread.is_alive()
        return early_end

    def _until_the_end(self, progress: LiveProgress, stall: StallWatch) -> tuple[Verdict, str] | None:
        stop_at: float | None = None
        while not all(node.done for node in self._nodes.values()):
            with contextlib.suppress(queue.Empty):
                node = self._ended.get(timeout=0.1)
                node.done = True
                if node.outcome.exit_code != 0 and stop_at is None:
                    stop_at = self._clock.now() + PEER_GRACE_SECONDS
            progress.tick()
            early_end = self._early_end(stall)
            if early_end is not None or (stop_at is not None and self._clock.now() >= stop_at):
                return early_end
        # What lost the nodes may be what ends the run: the end of the allocation that they belong to.
        return self._early_end(stall) if any(node.lost for node in self._nodes.values()) else None

    def _early_end(self, stall: StallWatch) -> tuple[Verdict, str] | None:
        if self._context.interruption.is_set():
            return Verdict.ABORTED, self._context.interruption.reason
        if self._context.interruption.time_is_up():
            return Verdict.TIMEOUT, self._context.interruption.time_limit_reason
        if self._clock.now() >= self._deadline:
            return Verdict.TIMEOUT, f"did not end within its time limit of {self._case.time_limit:g} s"
        stalled = stall.stalled()
        return None if stalled is None else (Verdict.TIMEOUT, stalled)

    def _wait_for(self, node: RunningNode) -> None:
        """Wait for the end of one node, and note how it ended, or that it fell silent."""
        outcome = node.outcome
        outcome.heard_ms, heard = _now_ms(), self._clock.now()
        try:
            outcome.exit_code = self._exit_code(node)
        except FINAL as error:
            node.lost = outcome.lost = True
            outcome.error = str(error)
        except LinkLostError as error:
            node.silence = error.detail if node.answers() else ""
            silence = self._clock.now() - self._heard.get(node.plan.host, heard)
            outcome.lost = node.lost
            outcome.error = f"{node.plan.host}: its task does not answer for {silence:.0f} s ({error.detail})"
        except ClusterDynoError as error:
            outcome.error = str(error)
        except Exception as error:  # noqa: BLE001 - whatever its runtime answers is this round's verdict
            outcome.error = f"{node.plan.host}: cannot be waited for: {type(error).__name__}: {error}"
        finally:
            if outcome.exit_code is not None or not (node.lost or node.silent):  # it ended, and did not fall silent
                outcome.heard_ms = outcome.silent_ms = None
            outcome.silent_ms = outcome.silent_ms or _now_ms()
            self._ended.put(node)

    def _exit_code(self, node: RunningNode) -> int:
        """Wait on one node, across lost connections, for at most the link limit without an answer.

        A wait without an answer means either that the task continues or that the host is gone; the host is asked which.
        If the host answers but its runtime does not, the launch's own record of its end counts.
        """
        limit, outcome = self._context.link_limit, node.outcome
        patience = Patience(limit=limit, is_over=self._over.is_set, tell=LOG.warning, now=self._clock.now)
        link = Reconnecting(node.host, patience, node.outages.append)

        def heard() -> None:
            outcome.heard_ms, outcome.silent_ms = _now_ms(), None
            self._heard[node.plan.host] = self._clock.now()
            link.heard()

        def ended() -> int:
            code: int | None = None
            while code is None:
                is_again = outcome.silent_ms is not None
                slept = self._clock.slept
                try:
                    code = self._asked(node, RECONNECT_SECONDS if is_again else min(WAIT_SECONDS, limit / 4))
                except HostError as error:
                    if self._clock.slept != slept:
                        LOG.warning("%s: asked again, since the controller itself was suspended", node.plan.host)
                        refusal(node.host, min(HEARTBEAT_SECONDS, limit / 4))
                        heard()
                        continue
                    end = recorded_end(node) if is_again else None
                    if end is None:
                        outcome.silent_ms = outcome.silent_ms or _now_ms()
                        raise
                    node.silence = error.detail
                    node.warnings.append(f"{error}; {NODE_EXIT_FILE} says that its tasks ended with {end.exit_code}")
                    return end.exit_code
                heard()
            return code

        heard()
        return link.run(ended)

    def _asked(self, node: RunningNode, seconds: float) -> int | None:
        """The exit code of a node's task; None if it has none within `seconds`, and its host answers."""
        assert node.workload is not None
        try:
            code = node.workload.wait(seconds)
        except EngineSilentError as error:  # it is waited for like a link: its container may go on
            raise LinkLostError(node.plan.host, error.detail) from error
        if code is None:
            refused = refusal(node.host, min(HEARTBEAT_SECONDS, self._context.link_limit / 4))
            if isinstance(refused, FINAL):
                raise refused
            if refused is not None:
                raise LinkLostError(node.plan.host, "does not answer") from refused
        return code

    @contextlib.contextmanager
    def _follow(self) -> Iterator[LiveProgress]:
        """Feed rank 0's log into a progress display; a break of the stream interrupts the display for a moment only."""
        first = next(iter(self._nodes.values()))
        path = f"{first.plan.log_dir_host}/{rank_log_name(0)}"
        cancel = threading.Event()
        progress = LiveProgress(self._case.name, self._index, len(self._case.rounds))
        seen = 0

        def feed(chunk: bytes) -> None:
            nonlocal seen
            seen += len(chunk)
            progress.feed(chunk)

        def follow() -> None:
            limit = self._case.time_limit + WAIT_SECONDS
            while not cancel.is_set():
                argv = ["tail", "-c", f"+{seen + 1}", "-s", "0.5", "-F", path]
                with contextlib.suppress(HostError):
                    first.host.run(argv, deadline=limit, on_stdout=feed, check=False, cancel=cancel)
                cancel.wait(RECONNECT_SECONDS)

        thread = threading.Thread(target=follow, name="follow", daemon=True)
        thread.start()
        try:
            with progress:
                yield progress
        finally:
            cancel.set()
            thread.join(STOP_GRACE_SECONDS)

    def _take_stacks(self) -> None:
        """Make the ranks write their stacks; failures are reported and delay nothing."""
        running = {host: node for host, node in self._nodes.items() if node.workload and not node.done}
        asked = for_each(running, lambda node: node.workload.trace() if node.workload else None, reads_hosts=True)
        for host, error in asked.failed.items():
            running[host].warnings.append(f"{host}: no stacks: {error}")
        if asked.succeeded:
            time.sleep(STACKS_SECONDS)


def _broke(nodes: Iterable[RunningNode], early_end: tuple[Verdict, str] | None) -> bool:
    """Whether a round has ended badly by itself: it makes no progress, or a node of it failed."""
    if early_end is not None:
        return early_end[0] is Verdict.TIMEOUT
    return any(node.done and node.outcome.exit_code != 0 for node in nodes)


def stop_workloads(nodes: Mapping[str, RunningNode]) -> None:
    """Stop what still runs, across outages; a host that stays silent, or whose engine does, is skipped."""
    asked = {host: node for host, node in nodes.items() if not node.lost and not node.silent}
    running = {host: node for host, node in asked.items() if node.workload and not node.done}

    def stop(node: RunningNode) -> None:
        assert node.workload is not None
        if not node.answers():
            raise LinkLostError(node.plan.host, "out of reach")
        node.outcome.stopped = node.outcome.error is None
        node.workload.stop(STOP_GRACE_SECONDS)

    result = for_each(running, lambda node: node.persist(stop), reads_hosts=True)
    for host, error in result.failed.items():
        nodes[host].warnings.append(f"{host}: could not be stopped: {error}")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
