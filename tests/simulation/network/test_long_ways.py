"""Packets on ways of any length: switches in a row, and a detour that only an outage makes so long."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from tests.simulation.network.recordings import request, simulated

DATA_NS, ACK_NS, DELAY_NS = 8_052 * 8 // 100, 60 * 8 // 100, 500  # of 8000 bytes and a header, at 100 Gbit/s


def chain(path: Path, switches: int, *, straight: bool = False) -> str:
    """Two GPUs at the ends of switches in a row; `straight` is a link from the first of these to the last, link 1."""
    ends = [*range(2, 2 + switches)]
    pairs = [(0, 2), *([(2, ends[-1])] if straight else []), *itertools.pairwise(ends), (ends[-1], 1)]
    links = [f"{one} {other} 100Gbps {DELAY_NS}ns 0" for one, other in pairs]
    lines = [f"{2 + switches} 1 0 {switches} {len(links)} A100", " ".join(map(str, ends)), *links, ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("switches", [8, 9, 10, 12])
def test_a_packet_crosses_any_number_of_switches_in_a_row(switches: int, tmp_path: Path) -> None:
    """It is stored and forwarded at each, and its ACK comes back the same way."""
    words = ["-n", chain(tmp_path / "network", switches), "--op", "AllToAll", "--size", "16000", "--send-lat", "0"]
    found = simulated(request([*words, "-r", f"{tmp_path}/"], "framework"))
    hops = switches + 1
    assert found.complete and (found.path >= 0).sum(axis=1).tolist() == [hops, hops]
    assert (found.end - found.start).tolist() == [hops * (DATA_NS + ACK_NS + 2 * DELAY_NS)] * 2


def test_a_detour_may_be_longer_than_all_ways_were(tmp_path: Path) -> None:
    """Flows that begin and end in the outage take it."""
    network = chain(tmp_path / "network", 12, straight=True)
    words = ["-n", network, "--op", "AllReduce", "--size", "1M", "--send-lat", "0", "--outage", "leaf0-leaf1@20:9000"]
    found = simulated(request([*words, "-r", f"{tmp_path}/"], "framework"))
    assert found.complete and found.lost and found.path.shape[1] == 13 + 1
    inside = (found.start > 20_000) & (found.end < 9_000_000)
    assert inside.sum() == 2 and set((found.path[inside] >= 0).sum(axis=1).tolist()) == {13}
