"""Makes the matrix of each host from the pattern peers: busbw between every two of its ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from protocol.default_outcome import is_measured
from protocol.outcome import Paragraph, Table, TableCell

PATTERN = "peers"
Rates = dict[tuple[int, int], float]  # GB/s by two global ranks, the smaller one first


def peer_rates(steps: Sequence[Mapping[str, Any]]) -> dict[int, Rates]:
    """By node rank, the busbw of each pair of ranks in GB/s: the median over the repeats at the largest size.

    Values of another form are passed over: a host may send anything.
    """
    found: dict[int, dict[tuple[int, int], list[float]]] = {}
    groups = list(_groups(steps))
    largest = max((size for size, _, _, _ in groups), default=0)
    for size, node_rank, pair, gbps in groups:
        if size == largest:
            found.setdefault(node_rank, {}).setdefault(pair, []).append(gbps)
    return {node: {pair: median(values) for pair, values in rates.items()} for node, rates in sorted(found.items())}


def _groups(steps: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int, tuple[int, int], float]]:
    for step in (each for each in steps if each.get("pattern") == PATTERN):
        groups = step.get("groups")
        for group in groups if isinstance(groups, list) else ():
            try:
                (node_rank,), (one, other) = group["node_ranks"], sorted(group["ranks"])
                size, gbps = group["size_bytes"], group["busbw_GBps"]
            except (KeyError, TypeError, ValueError):
                continue
            if all(isinstance(each, int) for each in (node_rank, one, other, size)) and is_measured(gbps):
                yield size, node_rank, (one, other), float(gbps)


def peer_blocks(steps: Sequence[Mapping[str, Any]], hosts: Mapping[int, str], most: int) -> Iterator[Table | Paragraph]:
    """A matrix for each of at most `most` hosts, the one with the slowest pair first; rows are local ranks."""
    rates = peer_rates(steps)
    ordered = sorted(rates, key=lambda node: min(rates[node].values()))
    for node in ordered[:most]:
        yield _matrix(hosts.get(node, str(node)), rates[node])
    if len(ordered) > most:
        yield Paragraph(text=f"{len(ordered) - most} more hosts, whose slowest pairs are faster, are in round.json.")


def _matrix(host: str, rates: Rates) -> Table:
    ranks = sorted({rank for pair in rates for rank in pair})

    def cell(one: int, other: int) -> TableCell:
        gbps = rates.get((min(one, other), max(one, other)))
        return TableCell(value="") if gbps is None else TableCell(value=gbps)

    return Table(
        title=f"{host}: busbw between its ranks (by local rank), GB/s, median of the repeats",
        columns=("", *(str(place) for place in range(len(ranks)))),
        rows=tuple(
            (TableCell(value=str(place)), *(cell(one, other) for other in ranks)) for place, one in enumerate(ranks)
        ),
    )
