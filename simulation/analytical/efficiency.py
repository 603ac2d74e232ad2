"""The measured share of the full bus bandwidth that a message of a given size reaches.

The tables in data/ are measurements that SimAI publishes (Apache-2.0, astra-sim-alibabacloud/inputs/ratio): a row a
message size from 16 MiB to 16 GiB, a column a number of servers, and `Multi` columns with one GPU a server.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

from common.interpolation import log_place

NIC, NVLINK, ALLTOALL_TABLE = "nic", "nvlink", "alltoall"
DATA = Path(__file__).with_name("data")
FIRST_SIZE, LAST_SIZE = 16 << 20, 16 << 30  # bytes
SERVERS = (1, 2, 4, 8, 16, 32, 64, 128)
ALONE_SERVERS = (16, 32, 64)
_ALONE_COLUMN = len(SERVERS)


class EfficiencyTable(NamedTuple):
    """sizes in bytes, ascending; columns: one per number of servers, None where nothing was measured."""

    sizes: tuple[int, ...]
    columns: tuple[tuple[float | None, ...], ...]


@cache
def table(name: str) -> EfficiencyTable:
    """The table nic, nvlink or alltoall as it is published."""
    lines = (DATA / f"{name}.csv").read_text(encoding="utf-8").split("\n")[1:]
    rows = [line.strip().split(",") for line in lines if line.strip()]
    columns = zip(*([float(cell) if cell else None for cell in row[1:]] for row in rows), strict=True)
    return EfficiencyTable(tuple(int(row[0]) for row in rows), tuple(columns))


@cache
def curve(name: str, servers: int, alone: bool) -> tuple[float, ...]:
    """Share of the full bandwidth at each size of the table, for any number of servers; 1 at the last size.

    Between two measured numbers of servers it is interpolated in the logarithm; outside it is that of the nearest.
    alone: one GPU of the group a server. A share never more than doubles from row to row (where the sizes double),
    because a larger message would else take less time.
    """
    known = ALONE_SERVERS if alone else SERVERS
    offset = _ALONE_COLUMN if alone else 0
    columns = table(name).columns
    measured = [(count, columns[offset + at]) for at, count in enumerate(known) if columns[offset + at][0] is not None]
    place, weight = log_place([count for count, _column in measured], servers)
    lower, upper = (_normalised(measured[at][1]) for at in (place, place + (weight > 0)))
    shares: list[float] = []
    for low, high in zip(lower, upper, strict=True):
        share = low + (high - low) * weight
        shares.append(min(share, 2 * shares[-1]) if shares else share)
    return tuple(shares)


def efficiency(name: str, size: int, servers: int, alone: bool) -> float:
    """Share of the full bus bandwidth for a message of `size` bytes, by linear interpolation in the size.

    Below the first size of the table it is that size's, above the last one that one's.
    """
    sizes, shares = table(name).sizes, curve(name, servers, alone)
    if size <= sizes[0]:
        return shares[0]
    for at in range(1, len(sizes)):
        if size <= sizes[at]:
            part = (size - sizes[at - 1]) / (sizes[at] - sizes[at - 1])
            return shares[at - 1] + (shares[at] - shares[at - 1]) * part
    return shares[-1]


def _normalised(column: tuple[float | None, ...]) -> list[float]:
    last = column[-1] or 1.0
    return [1.0 if share is None else share / last for share in column]
