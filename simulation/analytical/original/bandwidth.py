"""Bus bandwidths and efficiencies as the original computes them: always ring, ranks taken for servers, whole NICs.

The rules are those of SimAI 1.7 (cef83f9d), found by running it.
"""

from typing import NamedTuple

from simulation.analytical import efficiency
from simulation.analytical.machine import Question
from simulation.analytical.original.arithmetic import float32
from workloads.formats.simai_text import ALLGATHER, ALLTOALL, DP, EP, REDUCESCATTER, TP

_COLUMNS = {1: 0, 2: 1, 4: 2, 8: 3, 16: 4, 32: 5, 64: 6, 128: 7}
_OTHER_COLUMN = 4
_MULTI_COLUMN = 8
_MULTI = 9


class Reach(NamedTuple):
    """A group's extent in the original: servers, its GPUs and NICs in each; divisions are of integers."""

    servers: int
    per_server: int
    nics: int


class Bus(NamedTuple):
    """Bus bandwidth in GiB/s: 0 for a group of one GPU, -1 where the inputs make none; by_nvlink: NVLink limits it."""

    bandwidth: float
    by_nvlink: bool = False


class BeyondTableError(ValueError):
    """The original reads beyond the end of its efficiency tables and ends without a result."""


def reach(question: Question, group: str, ranks: int) -> Reach:
    """The extent that the original assumes of a group of `ranks`."""
    division, per_server, nics = question.division, question.cluster.gpus_per_server, question.cluster.nics_per_server
    tp, inside = division.tp, division.tp <= per_server
    if group == TP:
        return Reach(1, tp, nics) if inside else Reach(tp // per_server, per_server, nics)
    if group == EP:
        if tp * ranks <= per_server:
            return Reach(1, per_server // tp, nics)
        return Reach(tp * ranks // per_server, max(per_server // tp, 1), nics // tp if inside else nics // per_server)
    if group == DP:
        return Reach(division.dp, per_server // tp, nics // tp) if inside else Reach(division.dp, 1, nics // per_server)
    servers, width = division.dp // division.ep, tp * division.ep
    if width <= per_server:
        return Reach(servers, per_server // width, nics // width)
    return Reach(servers, 1, nics // per_server)


def bus(question: Question, group: str, collective: str, ranks: int) -> Bus:
    """The bandwidth of a group, from the types or from -nv and -nic."""
    servers, per_server, nics = reach(question, group, ranks)
    nvlink, nic = float32(question.cluster.nvlink), float32(question.cluster.nic)
    if servers * per_server == 1:
        return Bus(0.0)
    if nvlink <= 0 or nic <= 0 or per_server < 1 or nics < 1 or servers < 1:
        return Bus(-1.0)
    if servers == 1:
        return Bus(nvlink, collective == ALLTOALL)
    if collective == ALLTOALL:
        spread = (servers * per_server - 1) / ((servers - 1) * per_server)
        return Bus(float32(nic * nics / per_server * spread))
    across = float32(nic * nics)
    if per_server == 1:
        return Bus(across)
    within = float32(nvlink * per_server / (per_server - 1)) if across > nvlink else nvlink
    return Bus(within, True) if within < across else Bus(across)


def share(question: Question, group: str, collective: str, ranks: int, size: int, by_nvlink: bool) -> float:
    """The efficiency of a message of `size` bytes: from the tables for some collectives of TP and EP, else 1.

    Raises:
        BeyondTableError: the original ends here without a result.
    """
    tp, per_server = question.division.tp, question.cluster.gpus_per_server
    if collective in (ALLGATHER, REDUCESCATTER) and group == TP:
        name = efficiency.NVLINK if by_nvlink else efficiency.NIC
        return _looked_up(name, size, 1 if tp < per_server else tp // per_server)
    if collective == ALLTOALL and group == TP:
        return _looked_up(efficiency.ALLTOALL_TABLE, size, 1 if tp <= per_server else tp // per_server)
    if collective == ALLTOALL and group == EP:
        wide = _MULTI if tp >= per_server else tp * ranks // per_server
        return _looked_up(efficiency.ALLTOALL_TABLE, size, 1 if tp * ranks <= per_server else wide)
    return 1.0


def _looked_up(name: str, size: int, servers: int) -> float:
    if size == 0:
        return 1.0
    if size > efficiency.LAST_SIZE:
        raise BeyondTableError(f"{size} bytes are above the efficiency table's last size, {efficiency.LAST_SIZE}")
    at = _MULTI_COLUMN if servers == _MULTI else _COLUMNS.get(servers, _OTHER_COLUMN)
    published = efficiency.table(name)
    column = [1.0 if cell is None else cell for cell in published.columns[at]]
    if size <= published.sizes[0]:
        return column[0] / column[-1]
    upper = next(index for index, limit in enumerate(published.sizes) if size <= limit)
    low, high = published.sizes[upper - 1], published.sizes[upper]
    value = column[upper - 1] + (column[upper] - column[upper - 1]) * (size - low) / (high - low)
    return value / column[-1]
