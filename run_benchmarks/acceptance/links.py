"""Finds the RDMA ports that carried nothing while all hosts sent to all: nothing was tested of their links."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from common.shortening import few
from run_benchmarks.acceptance.kinds import node_infos
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.monitor_readings import sight_of

IDLE, SHOWN, MOST_PORTS = 0.01, 4, 32
"""Share of the usual port's bytes below which a port is idle; hosts of a port, and ports, that are named."""
WAYS = ("rx_bytes", "tx_bytes")


def idle_ports(run: LoadedRun, case: str) -> list[str]:
    """A sentence for each active RDMA port that sent or received next to nothing in the rounds of a case.

    The usual port is the median one of all hosts, in the direction in which each carried less.
    """
    carried = list(_carried(run, case))
    usual = median(number for _, _, number in carried) if carried else 0
    idle: dict[str, list[str]] = {}
    for host, port, number in carried:
        if number <= IDLE * usual:
            idle.setdefault(port, []).append(host)
    return [f"{port} of {few(hosts, SHOWN)}: it carried next to nothing in {case}" for port, hosts in idle.items()][
        :MOST_PORTS
    ]


def _carried(run: LoadedRun, case: str) -> Iterator[tuple[str, str, int]]:
    """Host, port and bytes of each active RDMA port whose traffic was counted."""
    for node, info in node_infos(run, case):
        ports = info.get("network")
        active = [_name(port) for port in ports if _is_active(port)] if isinstance(ports, list) else []
        counters = sight_of(node.host, info, node.monitor).counters
        for name in dict.fromkeys(active):
            counted = counters.get(name, {})
            if all(way in counted for way in WAYS):
                yield node.host, name, min(counted[way] for way in WAYS)


def _is_active(port: object) -> bool:
    """Whether it is a port of an InfiniBand or RoCE device ("mlx5_0/1") with a link."""
    return isinstance(port, dict) and "/" in _name(port) and port.get("state") == "active"


def _name(port: dict[str, object]) -> str:
    name = port.get("name")
    return name if isinstance(name, str) else ""
