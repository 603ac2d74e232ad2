"""Asks SimGrid (Debian: python3-simgrid) when flows end that share links fairly; run by an interpreter that has it.

    /usr/bin/python3 tests/simulation/network/simgrid_oracle.py < case.json

A case has `links` (bytes/s each) and `flows` (bytes, and the links of each); the answer is the end of each flow in s.
tests/data/simulation/simgrid.json holds the answers of SimGrid 3.32 for the first cases of test_fair_rates, in ns.
"""

from __future__ import annotations

import json
import sys


def ends_of(links: list[float], flows: list[tuple[float, list[int]]]) -> list[float]:
    """When each flow ends, all of which begin at 0 (s)."""
    import simgrid

    engine = simgrid.Engine(
        ["oracle", "--log=root.thresh:error", "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0",
         "--cfg=network/TCP-gamma:0", "--cfg=network/latency-factor:0", "--cfg=network/bandwidth-factor:1",
         "--cfg=network/weight-S:0", "--cfg=surf/precision:1e-9"]
    )  # fmt: skip
    zone = simgrid.NetZone.create_full_zone("zone")
    shared = [zone.create_link(f"link{number}", speed).seal() for number, speed in enumerate(links)]
    found = [0.0] * len(flows)

    def send(number: int, size: float) -> None:
        simgrid.Mailbox.by_name(str(number)).put(number, int(size))

    def receive(number: int) -> None:
        simgrid.Mailbox.by_name(str(number)).get()
        found[number] = simgrid.Engine.clock

    hosts = [[zone.create_host(f"{side}{number}", 1e9).seal() for side in "sr"] for number in range(len(flows))]
    for (sender, receiver), (_size, way) in zip(hosts, flows, strict=True):
        route = [simgrid.LinkInRoute(shared[link]) for link in way]
        zone.add_route(sender.netpoint, receiver.netpoint, None, None, route, True)
    zone.seal()
    for number, ((sender, receiver), (size, _way)) in enumerate(zip(hosts, flows, strict=True)):
        simgrid.Actor.create(f"send{number}", sender, send, number, size)
        simgrid.Actor.create(f"receive{number}", receiver, receive, number)
    engine.run()
    return found


if __name__ == "__main__":
    case = json.load(sys.stdin)
    json.dump(ends_of(case["links"], case["flows"]), sys.stdout)
