"""Reads one row of a workload: a layer with its forward, input-gradient and weight-gradient phase."""

from functools import lru_cache
from typing import NamedTuple

NONE = "NONE"
ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL = "ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL"
BROADCAST = "BROADCAST"
COLLECTIVES = (ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, BROADCAST)
TP, EP, DP, DP_EP = "TP", "EP", "DP", "DP_EP"
ALL, EP_TP, EMBEDDING, PP = "ALL", "EP_TP", "EMBEDDING", "PP"
SUFFIXES = (DP_EP, EP_TP, EP, TP, DP, ALL, EMBEDDING, PP)  # the longer first
SIMAI_SUFFIXES = (DP_EP, EP)
PHASES = ("forward", "input gradient", "weight gradient")
FIELDS = 12
LARGEST = 1 << 63
EMBEDDING_LAYER = b"embedding_layer"  # the one layer that a pipeline stage does not repeat for each micro-batch
_PHASE_AT = (2, 5, 8)


class LayerPhase(NamedTuple):
    """One phase: compute time in ns, collective and group (NONE where nothing is sent), bytes."""

    compute_ns: int
    collective: str
    group: str
    size: int


class Row(NamedTuple):
    """The three phases of a layer."""

    forward: LayerPhase
    input_gradient: LayerPhase
    weight_gradient: LayerPhase


def split_row(line: bytes) -> list[bytes]:
    """The layer's name and the rest of the line, which is empty where there is but a name."""
    parts = line.split(None, 1) or [b""]
    return parts if len(parts) > 1 else [*parts, b""]


def parse_row(rest: bytes, suffixes: tuple[str, ...] = SUFFIXES) -> Row:
    """The phases of a row, from all its cells but the name.

    Raises:
        ValueError: a cell is wrong; the message says which and what is allowed.
    """
    cells = rest.decode("ascii", "replace").split()
    if len(cells) != FIELDS - 1:
        raise ValueError(f"{len(cells) + 1} fields where {FIELDS} are expected")
    phases = []
    for at, name in zip(_PHASE_AT, PHASES, strict=True):
        compute = _count(cells[at - 1], f"the {name} compute time in ns")
        size = _count(cells[at + 1], f"the bytes of the {name} phase")
        collective, group = parse_collective(cells[at], suffixes)
        phases.append(LayerPhase(compute, collective, group or (DP if at == _PHASE_AT[2] else TP), size))
    return Row(*phases)


@lru_cache(1024)
def parse_collective(text: str, suffixes: tuple[str, ...] = SUFFIXES) -> tuple[str, str]:
    """Collective and group of a cell such as ALLREDUCE_DP_EP; the group is empty where the cell names none."""
    for suffix in suffixes:
        if text.endswith(f"_{suffix}"):
            return _collective(text.removesuffix(f"_{suffix}")), suffix
    return _collective(text), ""


def _collective(text: str) -> str:
    return NONE if text in (NONE, "None") else text


def _count(text: str, what: str) -> int:
    try:
        number = int(text) if text.lstrip("-").isdecimal() else int(float(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{what} is {text[:40]!r}, not a whole number") from None
    if not 0 <= number < LARGEST:
        raise ValueError(f"{what} is {text[:40]}, allowed is 0 to 2^63 - 1")
    return number
