"""Detects that ranks of a round make no progress, from the launcher's records of each rank and from its log."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from pydantic import ValidationError

from protocol import safe_json
from protocol.circumstance import NodeLook
from protocol.rank_states import RANK_STATES_FILE, NodeRanks, RankState
from run_benchmarks.errors import HostError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.results.rank_logs import rank_log_name
from run_benchmarks.state.context import HEARTBEAT_SECONDS, RunningNode

POLLS_PER_LIMIT = 10
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.5, 60.0
STATES_BYTES = 1 << 20
SILENT_SECONDS = 10.0  # five missing reports of a rank: its last report of where it waits is outdated
# Prints size and name of each rank's log, an empty line, and the launcher's record of its ranks.
LOOK = f"""cd "$1" || exit 0
stat -c '%s %n' rank*.out.log 2>/dev/null
echo
head -c {STATES_BYTES} {RANK_STATES_FILE} 2>/dev/null
true"""
SIZE_DIGITS = 19  # of the largest file there can be


@dataclass(frozen=True, kw_only=True)
class RankSnapshot:
    """One rank as its host shows it: the bytes of its log, and its state if its launcher reports it.

    `silent_seconds`: time since its last report to the launcher.
    """

    log_bytes: int | None
    state: RankState | None
    silent_seconds: float = 0.0

    @property
    def has_ended(self) -> bool:
        """Whether its process is gone, so that no more progress is expected."""
        return self.state is not None and self.state.ended_us is not None

    @property
    def is_free_to_step(self) -> bool:
        """Whether it works and waits for no peer: only the rank itself prevents its progress.

        So does one of which its launcher reports nothing: a rank announces itself before it waits for anybody.
        """
        waits = self.state is not None and self.state.waits_in is not None and self.silent_seconds < SILENT_SECONDS
        return self.state is None or (self.state.is_training and not waits)

    def progress(self) -> tuple[object, ...]:
        """Values that change while the rank progresses: its counts; of a training free to step not its output."""
        if self.state is None:
            return (self.log_bytes,)
        return (*self.state.counts, self.state.ended_us, None if self.state.is_training else self.log_bytes)


class StallWatch:
    """Context manager that asks the hosts periodically for the progress of their ranks.

    A host that cannot be asked counts as progress: its loss is detected elsewhere. `now`: the clock, in seconds.
    `slept`: the seconds in which this process could not run; when they grow, each limit starts anew.
    """

    def __init__(
        self,
        nodes: Collection[RunningNode],
        limit: float,
        now: Callable[[], float] = time.monotonic,
        slept: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._nodes = {node.plan.host: node for node in nodes}
        self._limit = limit
        self._poll = min(max(limit / POLLS_PER_LIMIT, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
        self._now, self._slept = now, slept
        self._slept_before = slept()
        self._looks = {
            (node.plan.host, rank): RankSnapshot(log_bytes=None, state=None)
            for node in nodes
            for rank in node.plan.ranks
        }
        self._moved_at = dict.fromkeys(self._looks, now())
        self._records: dict[str, NodeRanks] = {}
        self._renewed_at = dict.fromkeys(self._nodes, now())
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall", daemon=True)

    def __enter__(self) -> StallWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(HEARTBEAT_SECONDS)

    def stalled(self) -> str | None:
        """A sentence if no rank progressed within the limit, or one that waits for no other did not; else None.

        A rank whose launcher no longer reports, as in a paused container, may have ceased to wait: it counts, too.
        """
        with self._lock:
            now, slept = self._now(), self._slept()
            if slept != self._slept_before:
                self._slept_before = slept
                self._moved_at = dict.fromkeys(self._moved_at, now)
                self._renewed_at = dict.fromkeys(self._renewed_at, now)
            since = {key: now - self._moved_at[key] for key in self._running()}
            still = {key for key, seconds in since.items() if seconds > self._limit}
            silent = self._silent_hosts(now)
            alone = [key for key in still if key[0] in silent or self._looks[key].is_free_to_step]
        limit = f"its stall limit is {self._limit:g} s"
        if since and since.keys() == still:
            return f"no rank made progress for {min(since.values()):.1f} s, {limit}"
        if alone:
            host, rank = max(alone, key=since.__getitem__)
            return f"rank {rank} on {host} made no progress for {since[host, rank]:.1f} s, {limit}, while others did"
        return None

    def _running(self) -> set[tuple[str, int]]:
        """Host and rank of those that have not ended; of all on hosts that are not done where each has ended."""
        there = {key: look for key, look in self._looks.items() if not self._nodes[key[0]].done}
        return {key for key, look in there.items() if not look.has_ended} or set(there)

    def _silent_hosts(self, now: float) -> set[str]:
        """The hosts whose launchers no longer report."""
        reports_since = now - max(self._limit, SILENT_SECONDS)
        return {host for host, renewed_at in self._renewed_at.items() if renewed_at < reports_since}

    def look_once_more(self) -> None:
        """Look at the nodes that have not ended, and keep what they show now as their outcome's `look`."""
        self._end.set()
        self._thread.join(HEARTBEAT_SECONDS)
        running = {host: node for host, node in self._nodes.items() if not node.done}
        asked = for_each(running, self._look, reads_hosts=True)
        for host, node in running.items():
            ranks = self._records.get(host)
            if host in asked.succeeded and ranks is not None:
                silent = self._now() - self._renewed_at[host]
                node.outcome.look = NodeLook(ranks=ranks, silent_seconds=silent)

    def _watch(self) -> None:
        while not self._end.wait(self._poll):
            running = {host: node for host, node in self._nodes.items() if not node.done}
            asked = for_each(running, self._look, reads_hosts=True)
            with self._lock:
                for host, node in running.items():
                    self._compare(node, asked.succeeded.get(host))

    def _compare(self, node: RunningNode, looks: Mapping[int, RankSnapshot] | None) -> None:
        for rank in node.plan.ranks:
            key = node.plan.host, rank
            look = self._looks[key] if looks is None else looks[rank]
            if looks is None or look.progress() != self._looks[key].progress():
                self._moved_at[key] = self._now()
            self._looks[key] = look

    def _look(self, node: RunningNode) -> dict[int, RankSnapshot]:
        if node.lost:
            raise HostError(node.plan.host, "out of reach")
        found = node.host.run(["sh", "-c", LOOK, "sh", node.plan.log_dir_host], deadline=HEARTBEAT_SECONDS).stdout
        host, record, known = node.plan.host, _record_in(found), self._records.get(node.plan.host)
        if record is not None and (known is None or record.written_ms != known.written_ms):
            self._records[host], self._renewed_at[host] = record, self._now()
        return parse_looks(found, node.plan.ranks)


def _record_in(text: str) -> NodeRanks | None:
    """The launcher's record of its ranks in the output of LOOK; None if it is missing or unreadable."""
    _, _, states = text.partition("\n\n") if not text.startswith("\n") else ("", "", text)
    with contextlib.suppress(ValidationError, safe_json.UnsafeJsonError):
        return NodeRanks.from_text(states.strip())
    return None


def parse_looks(text: str, ranks: Collection[int]) -> dict[int, RankSnapshot]:
    """The output of LOOK by rank; unreadable parts count as missing."""
    sizes_text = "" if text.startswith("\n") else text.partition("\n\n")[0]
    sizes = {name: size for size, _, name in (line.partition(" ") for line in sizes_text.splitlines())}
    record = _record_in(text)
    states = {state.rank: state for state in record.ranks} if record else {}
    found = {}
    for rank in ranks:
        size, state = sizes.get(rank_log_name(rank), ""), states.get(rank)
        silent = 0.0 if state is None or record is None else (record.written_ms - state.told_ms) / 1000
        bytes_ = int(size) if size.isdecimal() and len(size) <= SIZE_DIGITS else None
        found[rank] = RankSnapshot(log_bytes=bytes_, state=state, silent_seconds=silent)
    return found
