"""Loses a rank at any moment of its peers' connecting, many times, and prints who is blamed: a line of JSON each time.

    python -m tests.training.benchmarks.driver.launch.losing FOLDER FIRST_SEED TIMES

Every rank is a process that runs driver.launch.rank, forked so that torch is imported once. What torchrun's agent does
is done here: it serves the store, asks after the ranks every 0.1 s, and ends the others when one has failed.
"""

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from protocol.node_record import NodeExit, RankFailure
from protocol.pulse import SOCKET_ENV
from run_benchmarks.results.blame import first_failure
from run_benchmarks.results.node_outcome import NodeOutcome
from tests.run_benchmarks.hosts.sshd import free_port
from tests.run_benchmarks.results.rounds import node_plan
from tests.training.benchmarks.driver.launch import connecting_workload
from training.benchmarks.driver.launch import processes, rank
from training.benchmarks.driver.launch.failures import RANK_GRACE_S, EndedRank, ordered, seen
from training.benchmarks.driver.launch.rank_watch import RankWatch, now_ms

POLL_S = 0.1
GROUP_S = 1.0
WITHIN_S = 0.4  # from the start of the ranks to their first collectives
BUSY = 2
STANDS_S = 0.2  # of a peer that the host gives no time


@dataclass(kw_only=True)
class Rank:
    """One rank's process and how it ended."""

    local_rank: int
    rank: int
    pid: int
    error_file: Path
    returncode: int | None = None
    noticed_ms: int = 0

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid == self.pid:
                self.returncode, self.noticed_ms = os.waitstatus_to_exitcode(status), now_ms()
        return self.returncode

    def send(self, number: signal.Signals) -> None:
        """Send it a signal if it was not reaped."""
        if self.returncode is None:
            os.kill(self.pid, number)


@dataclass(kw_only=True)
class Node:
    """One node: its folder, its ranks, their watch, and when its agent asks after them."""

    folder: Path
    watch: RankWatch
    ranks: list[Rank] = field(default_factory=list)
    phase_s: float = 0.0
    noticed: list[Rank] = field(default_factory=list)

    def ask(self) -> bool:
        """Look for ranks that have ended; returns whether one failed."""
        for each in self.ranks:
            if each.returncode is None and each.poll():
                self.noticed.append(each)
        return bool(self.noticed)

    def attend(self) -> None:
        """Wait for the ranks as torchrun's agent does: a failure ends the others."""
        time.sleep(self.phase_s)
        while not self.ask():
            if all(each.returncode is not None for each in self.ranks):
                return
            time.sleep(POLL_S)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for each in self.ranks:
                each.send(signal.SIGCONT)
                each.send(number)
            until = time.monotonic() + RANK_GRACE_S
            while any(each.returncode is None for each in self.ranks) and time.monotonic() < until:
                self.ask()
                time.sleep(0.005)

    def record(self) -> list[RankFailure]:
        """The failures as the launcher writes them."""
        self.watch.stop()
        found = [
            EndedRank(
                rank=each.rank,
                local_rank=each.local_rank,
                pid=each.pid,
                returncode=each.returncode or 0,
                noticed_ms=each.noticed_ms // 1000 * 1000,
                error_file=processes._read(each.error_file),
            )
            for each in self.noticed
        ]
        failures = ordered([seen(each, self.watch.ended_ms, self.folder) for each in found]) if found else []
        NodeExit(
            exit_code=failures[0].shell_code if failures else 0,
            failures=failures,
            argv=[],
            interface=None,
            started_ms=0,
            finished_ms=now_ms(),
            torch=None,
        ).write(self.folder)
        return failures


def be_rank(environment: dict[str, str], folder: Path, begin: int) -> NoReturn:
    """Run driver.launch.rank in this forked process, once `begin` is closed."""
    os.read(begin, 1)
    os.environ |= environment
    sys.argv = ["rank", "--log_dir", str(folder), "--", connecting_workload.__name__, str(GROUP_S)]
    rank.main()
    sys.exit(0)


@contextlib.contextmanager
def busy() -> Iterator[None]:
    """Loops that take the CPU meanwhile."""
    loops = []
    for _ in range(BUSY):
        if (pid := os.fork()) == 0:
            signal.alarm(1)
            while True:
                pass
        loops.append(pid)
    try:
        yield
    finally:
        for pid in loops:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The draws of a round: its nodes and their ranks, who is killed when, and who stands still meanwhile."""

    seed: int
    nodes: int
    per_node: int
    crowded: bool
    own_store: bool
    victim: int
    moment: float
    standing: int | None
    phases: list[float]


def drawn(draw: random.Random, seed: int) -> Draw:
    """The next round."""
    nodes, per_node = draw.choice([(1, 2), (1, 2), (1, 3), (2, 1), (2, 2)])
    world, crowded = nodes * per_node, draw.random() < 0.3
    own_store = draw.random() < 0.3
    victim, moment = draw.randrange(world), draw.uniform(0, WITHIN_S)
    standing = draw.randrange(world) if draw.random() < 0.3 else None
    return Draw(
        seed=seed,
        nodes=nodes,
        per_node=per_node,
        crowded=crowded,
        own_store=own_store,
        victim=victim,
        moment=moment,
        standing=None if standing == victim else standing,
        phases=[draw.uniform(0, POLL_S) for _ in range(nodes)],
    )


def started(its: Draw, folder: Path, port: int, ready: int, go: int) -> list[Rank]:
    """The ranks, which wait until the pipe from `go` to `ready` is closed."""
    made = []
    for number in range(its.nodes * its.per_node):
        server, local = divmod(number, its.per_node)
        node = folder / f"node{server}"
        node.mkdir(parents=True, exist_ok=True)
        error_file = node / f"error{number}.json"
        environment = {
            "RANK": str(number),
            "WORLD_SIZE": str(its.nodes * its.per_node),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(its.per_node),
            "GROUP_RANK": str(server),
            "GROUP_WORLD_SIZE": str(its.nodes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCHELASTIC_USE_AGENT_STORE": str(not its.own_store),
            "TORCHELASTIC_RESTART_COUNT": str(its.seed),
            "TORCHELASTIC_RUN_ID": "none",
            processes.ERROR_FILE_ENV: str(error_file),
            SOCKET_ENV: str(node / "ranks"),
        }
        if (pid := os.fork()) == 0:
            os.close(go)
            be_rank(environment, node, ready)
        made.append(Rank(local_rank=local, rank=number, pid=pid, error_file=error_file))
    return made


def kill(draw: random.Random, its: Draw, made: list[Rank], go: int) -> None:
    """Let the ranks begin and kill the victim at its moment, while another may stand still."""
    began = time.monotonic()
    os.close(go)
    if its.standing is not None:
        time.sleep(its.moment * draw.random())
        made[its.standing].send(signal.SIGSTOP)
    time.sleep(max(0.0, began + its.moment - time.monotonic()))
    made[its.victim].send(signal.SIGKILL)
    if its.standing is not None:
        time.sleep(draw.uniform(0, STANDS_S))
        made[its.standing].send(signal.SIGCONT)


def lose(folder: Path, seed: int, port: int) -> dict[str, object]:
    """One round in which a rank is killed: what was drawn, the failures of each node, and who is blamed."""
    draw = random.Random(seed)
    its = drawn(draw, seed)
    ready, go = os.pipe()
    made = started(its, folder, free_port() if its.own_store else port, ready, go)
    os.close(ready)
    with contextlib.ExitStack() as stack:
        places = []
        for number, phase in enumerate(its.phases):
            where = folder / f"node{number}"
            watch = stack.enter_context(RankWatch(where, where))
            own = made[number * its.per_node : (number + 1) * its.per_node]
            places.append(Node(folder=where, watch=watch, ranks=own, phase_s=phase))
        if its.crowded:
            stack.enter_context(busy())
        kill(draw, its, made, go)
        # The node of the rank that was killed first; the others have 5 s to notice by themselves.
        for place in sorted(places, key=lambda place: made[its.victim] not in place.ranks):
            place.attend()
        failures = [place.record() for place in places]
    return told(its, places, failures)


def told(its: Draw, places: list[Node], failures: list[list[RankFailure]]) -> dict[str, object]:
    """The line that is printed of a round, from the failures of each node."""
    outcomes = [
        NodeOutcome(
            node=node_plan(f"node{number}", number, [each.rank for each in place.ranks]),
            folder=place.folder,
            exit_code=found[0].shell_code if found else 0,
        )
        for number, (place, found) in enumerate(zip(places, failures, strict=True))
    ]
    logs = {log.rank: log for outcome in outcomes for log in outcome.rank_logs()}
    blamed = first_failure(outcomes, logs, timed_out=False)
    return {
        "seed": its.seed,
        "nodes": its.nodes,
        "ranks": its.per_node,
        "moment": round(its.moment, 3),
        "own_store": its.own_store,
        "victim": its.victim,
        "blamed": None if blamed is None else blamed.rank,
        "message": None if blamed is None else blamed.message[-300:],
        "others": [_of_other(each) for found in failures for each in found if each.rank != its.victim],
    }


def _of_other(failure: RankFailure) -> dict[str, object]:
    return {
        "rank": failure.rank,
        "stopped": failure.stopped,
        "lost_peer": failure.lost_peer,
        "waited": failure.waited,
        "in_communication": failure.in_communication,
        "code": failure.exit_code if failure.signal is None else failure.signal,
        "message": failure.message.strip().splitlines()[-1][:400],
    }


@contextlib.contextmanager
def agent_store() -> Iterator[int]:
    """The port of a store in a process of its own, such as torchrun's agent serves."""
    port = free_port()
    if (keeper := os.fork()) == 0:
        store = TCPStore("127.0.0.1", port, None, True, timedelta(seconds=30), wait_for_workers=False)
        assert store is not None
        signal.alarm(60)
        signal.pause()
    try:
        yield port
    finally:
        os.kill(keeper, signal.SIGKILL)
        os.waitpid(keeper, 0)


def main() -> None:
    """Lose a rank once for each seed, and print what was noticed."""
    folder, first, times = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for seed in range(first, first + times):
        with agent_store() as port:
            print(json.dumps(lose(folder / str(seed), seed, port)), flush=True)


if __name__ == "__main__":
    main()
