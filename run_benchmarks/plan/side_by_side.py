"""Decides by their sizes which cases run side by side, and on which hosts each of them."""

from collections.abc import Container, Sequence
from dataclasses import dataclass

from run_benchmarks.settings.case import CaseSettings
from run_benchmarks.settings.value_types import Placement

Wave = dict[str, tuple[str, ...]]  # cases that run at the same time, with the hosts of each


@dataclass(frozen=True, kw_only=True)
class Demand:
    """A case that needs `nnodes` of `allowed`, which stand in the order in which it takes them."""

    name: str
    nnodes: int
    allowed: tuple[str, ...]


def demand_of(name: str, case: CaseSettings, hosts: Sequence[str]) -> Demand:
    """The demand of a case for these hosts."""
    return Demand(name=name, nnodes=case.nnodes, allowed=case.hosts_of(hosts))


def waves(demands: Sequence[Demand], most: int, placement: Placement) -> list[Wave]:
    """The waves in which cases run: at most so many in each, none on the hosts of another; one after the other.

    The largest come first, each in the first wave with room for it (first fit decreasing: at most 11/9 of the fewest
    waves and 6/9, Dósa, 2007). Waves stand in the order of their first cases. A case with too few hosts has its own.
    """
    places = {demand.name: number for number, demand in enumerate(demands)}
    found: list[Wave] = []
    for demand in sorted(demands, key=lambda demand: -demand.nnodes):
        for wave in found:
            taken = {host for hosts in wave.values() for host in hosts}
            if len(wave) < most and len(hosts := chosen(demand, taken, placement)) == demand.nnodes:
                wave[demand.name] = hosts
                break
        else:
            found.append({demand.name: chosen(demand, (), placement)})
    ordered = [dict(sorted(wave.items(), key=lambda item: places[item[0]])) for wave in found]
    return sorted(ordered, key=lambda wave: places[next(iter(wave))])


def chosen(demand: Demand, taken: Container[str], placement: Placement) -> tuple[str, ...]:
    """The hosts that a case gets beside those that are taken; fewer than it needs if there are no more.

    "contiguous": the first that follow each other in the case's order, the first free ones where none do; "spread": at
    equal distances over the free ones.
    """
    free = tuple(host for host in demand.allowed if host not in taken)
    count = demand.nnodes
    if len(free) <= count:
        return free
    if placement == "spread":
        return tuple(free[number * len(free) // count] for number in range(count))
    for begin in range(len(demand.allowed) - count + 1):
        row = demand.allowed[begin : begin + count]
        if not any(host in taken for host in row):
            return row
    return free[:count]
