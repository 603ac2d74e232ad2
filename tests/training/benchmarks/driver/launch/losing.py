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


def lose(folder: Path, seed: int, port: int) -> dict[str, object]:
    """One round in which a rank is killed: what was drawn, the failures of each node, and who is blamed."""
    draw = random.Random(seed)
    nodes, per_node = draw.choice([(1, 2), (1, 2), (1, 3), (2, 1), (2, 2)])
    world, crowded = nodes * per_node, draw.random() < 0.3
    own_store = draw.random() < 0.3
    victim, moment = draw.randrange(world), draw.uniform(0, WITHIN_S)
    standing = draw.randrange(world) if draw.random() < 0.3 else None
    phases = [draw.uniform(0, POLL_S) for _ in range(nodes)]
    if own_store:
        port = free_port()
    ready, go = os.pipe()
    made = []
    for number in range(world):
        node = folder / f"node{number // per_node}"
        node.mkdir(parents=True, exist_ok=True)
        error_file = node / f"error{number}.json"
        environment = {
            "RANK": str(number),
            "WORLD_SIZE": str(world),
            "LOCAL_RANK": str(number % per_node),
            "LOCAL_WORLD_SIZE": str(per_node),
            "GROUP_RANK": str(number // per_node),
            "GROUP_WORLD_SIZE": str(nodes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "GLOO_SOCKET_IFNAME": "lo",
            "TORCHELASTIC_USE_AGENT_STORE": str(not own_store),
            "TORCHELASTIC_RESTART_COUNT": str(seed),
            "TORCHELASTIC_RUN_ID": "none",
            processes.ERROR_FILE_ENV: str(error_file),
            SOCKET_ENV: str(node / "ranks"),
        }
        if (pid := os.fork()) == 0:
            os.close(go)
            be_rank(environment, node, ready)
        made.append(Rank(local_rank=number % per_node, rank=number, pid=pid, error_file=error_file))
    os.close(ready)
    with contextlib.ExitStack() as stack:
        places = []
        for number in range(nodes):
            where = folder / f"node{number}"
            watch = stack.enter_context(RankWatch(where, where))
            own = made[number * per_node : (number + 1) * per_node]
            places.append(Node(folder=where, watch=watch, ranks=own, phase_s=phases[number]))
        if crowded:
            stack.enter_context(busy())
        began = time.monotonic()
        os.close(go)
        if standing is not None and standing != victim:
            time.sleep(moment * draw.random())
            made[standing].send(signal.SIGSTOP)
        time.sleep(max(0.0, began + moment - time.monotonic()))
        made[victim].send(signal.SIGKILL)
        if standing is not None and standing != victim:
            time.sleep(draw.uniform(0, STANDS_S))
            made[standing].send(signal.SIGCONT)
        # The node of the rank that was killed first; the others have 5 s to notice by themselves.
        for place in sorted(places, key=lambda place: made[victim] not in place.ranks):
            place.attend()
        failures = {place.folder.name: place.record() for place in places}
    outcomes = [
        NodeOutcome(
            node=node_plan(f"node{number}", number, [each.rank for each in place.ranks]),
            folder=place.folder,
            exit_code=failures[place.folder.name][0].shell_code if failures[place.folder.name] else 0,
        )
        for number, place in enumerate(places)
    ]
    logs = {log.rank: log for outcome in outcomes for log in outcome.rank_logs()}
    blamed = first_failure(outcomes, logs, timed_out=False)
    return {
        "seed": seed,
        "nodes": nodes,
        "ranks": per_node,
        "moment": round(moment, 3),
        "own_store": own_store,
        "victim": victim,
        "blamed": None if blamed is None else blamed.rank,
        "message": None if blamed is None else blamed.message[-300:],
        "others": [
            {
                "rank": each.rank,
                "stopped": each.stopped,
                "lost_peer": each.lost_peer,
                "waited": each.waited,
                "in_communication": each.in_communication,
                "code": each.exit_code if each.signal is None else each.signal,
                "message": each.message.strip().splitlines()[-1][:400],
            }
            for found in failures.values()
            for each in found
            if each.rank != victim
        ],
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
