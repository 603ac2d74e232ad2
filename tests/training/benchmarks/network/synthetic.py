"""Steps as rank 0 logs them, from a model of a cluster: what each host and each path can do, and noise."""

import random
from collections.abc import Callable
from typing import Any

from training.benchmarks.network.patterns.schedule import Group, HostRanks, rounds

Speed = Callable[[Group], float]


def hosts_of(count: int) -> list[HostRanks]:
    """Hosts node1, node2, ... of two ranks each."""
    return [HostRanks(node_rank=k, name=f"node{k + 1}", ranks=(2 * k, 2 * k + 1)) for k in range(count)]


def slowest_member(factors: dict[str, float], paths: dict[frozenset[str], float] | None = None) -> Speed:
    """GB/s of a group: 10 times the least factor of its hosts (1 for those not named), or of the path of two."""

    def speed(group: Group) -> float:
        names = frozenset(host.name for host in group.hosts)
        path = (paths or {}).get(names, 1.0)
        return 10 * min(path, *(factors.get(name, 1.0) for name in names))

    return speed


def steps(
    pattern: str, count: int, speed: Speed, *, noise: float, seed: int, repeats: int = 3, size: int = 1 << 24
) -> list[dict[str, Any]]:
    """STEP_END values of `repeats` of the pattern; `noise` is the standard deviation of the speed's logarithm."""
    draw = random.Random(seed)
    found: list[dict[str, Any]] = []
    for repeat in range(1, repeats + 1):
        for each in rounds(pattern, hosts_of(count)):
            groups = []
            for group in each.groups:
                gbps = speed(group) * draw.lognormvariate(0, noise)
                groups.append(
                    {
                        "group": group.label,
                        "hosts": [host.name for host in group.hosts],
                        "node_ranks": [host.node_rank for host in group.hosts],
                        "ranks": list(group.ranks),
                        "world_size": len(group.ranks),
                        "size_bytes": size,
                        "busbw_GBps": gbps,
                        "time_us": {"p50": size / gbps / 1e3, "min": 0.97 * size / gbps / 1e3},
                    }
                )
            found.append({"pattern": pattern, "repeat": repeat, "round": each.name, "groups": groups})
    return found
