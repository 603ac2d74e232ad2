"""What holds at the packet level on any network: PFC loses nothing, under errors all arrives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulation.network.conf import NetworkConf
from simulation.network.link_changes import find_all_paths
from simulation.network.outcome import NetworkRun
from simulation.network.packet_loop import answer
from simulation.network.packet_state import ACK_BYTES, HEADER_BYTES, PAUSE_BYTES
from simulation.network.packet_state import DATA as DATA_KIND
from simulation.network.packets import network_of, prepared
from simulation.network.port_queues import chance, new_packet
from tests.simulation.network.recordings import DATA, request, simulated
from tests.tiers import samples

CONF, PATIENCE_NS = NetworkConf(), 2_000_000
examples = settings(max_examples=len(samples(40, 600)), deadline=None)


class Small(NamedTuple):
    """GPUs, each a server of its own, on leaves that a few spines join: Gbit/s of each GPU's link, and of an uplink."""

    leaves: list[list[int]]
    spines: int
    uplink: int

    def lines(self) -> list[str]:
        """The network file's lines: GPUs first, then leaves, then spines."""
        speeds = [speed for leaf in self.leaves for speed in leaf]
        first_leaf = len(speeds)
        first_spine = first_leaf + len(self.leaves)
        nodes = first_spine + self.spines
        homes = [first_leaf + number for number, leaf in enumerate(self.leaves) for _gpu in leaf]
        links = [f"{gpu} {leaf} {speed}Gbps" for gpu, (leaf, speed) in enumerate(zip(homes, speeds, strict=True))]
        links += [
            f"{leaf} {spine} {self.uplink}Gbps"
            for leaf in range(first_leaf, first_spine)
            for spine in range(first_spine, nodes)
        ]
        head = f"{nodes} 1 0 {nodes - first_leaf} {len(links)} A100"
        return [head, " ".join(map(str, range(first_leaf, nodes))), *(f"{link} 0.0005ms 0" for link in links)]


speeds = st.sampled_from([25, 50, 100, 200, 400])
networks = st.builds(
    Small,
    st.lists(st.lists(speeds, min_size=1, max_size=4), min_size=2, max_size=3),
    st.integers(1, 3),
    speeds,
)


def run(network: Small, size: int, conf: NetworkConf = CONF, seed: int = 0, *, slow: bool = False) -> NetworkRun:
    """An AllToAll of `size` bytes over all GPUs; `slow` is a hundred times as slow."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network"
        text = "\n".join(network.lines()) + "\n"
        text = text.replace("0Gbps", "00Mbps").replace("0.0005ms", "0.05ms") if slow else text
        path.write_text(text, encoding="utf-8")
        words = ["-n", str(path), "--op", "AllToAll", "--size", str(size), "--send-lat", "0", "-r", f"{folder}/"]
        asked = request(words, "framework")
    return simulated(asked._replace(wishes=asked.wishes._replace(conf=conf)), seed)


def carried(found: NetworkRun, overhead: int) -> int:
    """Bytes over all ports if each packet takes each hop of its flow once, with so many bytes besides."""
    packets = -(-found.size // CONF.payload_bytes)
    return int(((found.size + overhead * packets) * (found.path >= 0).sum(axis=1)).sum())


@examples
@given(networks, st.integers(1, 2000), st.integers(50, 400), st.booleans())
def test_under_pfc_no_byte_is_lost_or_sent_twice(network: Small, size: int, buffer: int, ecn: bool) -> None:
    conf = CONF._replace(buffer_bytes=buffer * 1000, ecn=ecn)
    found = run(network, size << 10, conf)
    assert found.complete and found.lost == found.resent == 0
    pauses_and_resumes = 2 * PAUSE_BYTES * found.pauses
    assert found.usage.sum() == carried(found, HEADER_BYTES + ACK_BYTES) + pauses_and_resumes


@examples
@given(networks, st.integers(1, 500), st.sampled_from([1e-3, 1e-2, 5e-2]), st.integers(0, 99))
def test_under_errors_all_bytes_arrive(network: Small, size: int, rate: float, seed: int) -> None:
    found = run(network, size << 10, CONF._replace(error_rate=rate), seed)
    assert found.complete and (found.lost > 0 or found.resent == 0)
    assert found.usage.sum() >= carried(found, HEADER_BYTES)  # of lost ACKs later ones tell


exact_speeds = st.sampled_from([40, 80, 160])  # of which a packet of 1060 bytes and an ACK take whole ns


@examples
@given(
    st.builds(
        Small,
        st.lists(st.lists(exact_speeds, min_size=1, max_size=4), min_size=2, max_size=3),
        st.integers(1, 3),
        exact_speeds,
    ),
    st.integers(5, 40),
)
def test_a_hundred_times_slower_everything_takes_a_hundred_times_as_long(network: Small, packets: int) -> None:
    """The slow network's packets end further ahead than the wheel of events reaches, its ACKs do not."""
    conf = CONF._replace(payload_bytes=1008, ecn=False)
    gpus = sum(map(len, network.leaves))
    size = packets * conf.payload_bytes
    fast, slow = (run(network, size * gpus, conf, slow=slow) for slow in (False, True))
    assert (fast.size == size).all()
    assert (slow.end - slow.start == 100 * (fast.end - fast.start)).all()


def test_a_small_buffer_makes_pauses() -> None:
    network = Small([[100, 100, 100, 100], [100, 400]], 2, 100)
    assert run(network, 2000 << 10, CONF._replace(buffer_bytes=100_000, ecn=False)).pauses > 100


def test_a_packet_that_is_missing_is_sent_again_at_once() -> None:
    """After a NACK; without one a sender waits 2 ms. Where the last packet or ACK is lost none can tell of it."""
    conf = CONF._replace(error_rate=3e-3)
    runs = [run(Small([[100], [100]], 1, 100), 4 << 20, conf, seed) for seed in range(8)]
    assert all(found.complete and found.resent for found in runs)
    assert sum(int((found.end - found.start).max()) < PATIENCE_NS for found in runs) >= 6


def test_replies_with_the_same_byte_are_lost_one_by_one(tmp_path: Path) -> None:
    """A NACK and those after it, of second copies, too; a mark changes nothing."""
    (tmp_path / "n").write_text("\n".join([*Small([[100], [100]], 1, 100).lines(), ""]), encoding="utf-8")
    words = ["-n", f"{tmp_path}/n", "--op", "AllToAll", "--size", "1M", "-r", f"{tmp_path}/"]
    asked = request(words, "framework")
    sim = prepared(network_of(asked.fabric, CONF._replace(error_rate=0.5)), asked.job, asked.wishes)
    find_all_paths(sim)
    flow, port = sim.flows[0], int(sim.back[0, 0])
    flow["expected"] = flow["size"]
    fates = []
    for mark in (0, 1, 0):
        copy = new_packet(sim, 0, DATA_KIND, 0, CONF.payload_bytes + HEADER_BYTES)
        sim.packets[copy]["marked"] = mark
        assert answer(sim, sim.packets[copy]) == port
        reply = sim.packets[sim.ports[port]["tail"]]
        fates.append(chance(sim, reply, port))
        assert reply["marked"] & 3 == 2 * mark
        reply["marked"] |= 1
        assert chance(sim, reply, port) == fates[-1]
    assert len(set(fates)) == 3


@pytest.mark.parametrize(("op", "size", "buffer"), [("AllToAll", "128M", 6), ("ReduceScatter", "64M", 0)])
def test_what_ns3_does_not_complete_ours_does(op: str, size: str, buffer: int, tmp_path: Path) -> None:
    """Recorded of SimAI's ns-3 among 32 GPUs: it aborts at a switch's first resume, and stalls with PXN."""
    words = ["-n", str(DATA / "topology" / "specx32_H100_400G_psn4"), "--op", op, "--size", size, "-r", f"{tmp_path}/"]
    if buffer:
        (tmp_path / "conf").write_text(f"BUFFER_SIZE {buffer}\n", encoding="utf-8")
    found = simulated(request([*words, *(["--conf", f"{tmp_path}/conf"] if buffer else ["--pxn"])]))
    assert found.complete and found.lost == found.resent == 0 and (found.pauses > 0) == bool(buffer)
