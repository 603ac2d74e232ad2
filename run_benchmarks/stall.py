"""Sees that the ranks of a round have stopped getting anywhere: none of their logs has grown for the stall limit."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Collection

from run_benchmarks.context import HEARTBEAT_SECONDS, Node
from run_benchmarks.errors import HostError
from run_benchmarks.hosts.fleet import for_each

POLLS_PER_LIMIT = 10
MIN_POLL_SECONDS, MAX_POLL_SECONDS = 0.5, 60.0
SIZES = 'cd "$1" && stat -c %s rank*.out.log 2>/dev/null; true'
STACK_LINE = re.compile(r"^(?:(?:Current thread|Thread) 0x[0-9a-f]+.*|  File \".*\", line \d+ in .*)$")


class StallWatch:
    """Context manager: asks the hosts now and then how long their ranks' logs are.

    A host that cannot be asked counts as progress: that it is lost is somebody else's finding.
    """

    def __init__(self, nodes: Collection[Node], limit: float) -> None:
        self._nodes = {node.plan.host: node for node in nodes}
        self._limit = limit
        self._poll = min(max(limit / POLLS_PER_LIMIT, MIN_POLL_SECONDS), MAX_POLL_SECONDS)
        self._sizes: dict[str, str] = {}
        self._progress_at = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall", daemon=True)

    def __enter__(self) -> StallWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(HEARTBEAT_SECONDS)

    def is_stalled(self) -> bool:
        """Whether no log has grown for the limit."""
        return time.monotonic() - self._progress_at > self._limit

    def _watch(self) -> None:
        while not self._end.wait(self._poll):
            running = {host: node for host, node in self._nodes.items() if not node.done}
            asked = for_each(running, self._size)
            if asked.failed or asked.succeeded != {host: self._sizes.get(host) for host in running}:
                self._progress_at = time.monotonic()
            self._sizes |= asked.succeeded

    def _size(self, node: Node) -> str:
        if node.lost:
            raise HostError(node.plan.host, "out of reach")
        return node.host.run(["sh", "-c", SIZES, "sh", node.plan.log_dir_host], deadline=HEARTBEAT_SECONDS).stdout


def stacks(log: str) -> str:
    """The stacks that faulthandler wrote into a rank's log, `` where there are none."""
    return "\n".join(line for line in log.splitlines() if STACK_LINE.match(line))
