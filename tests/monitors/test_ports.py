"""Counters of real interfaces under traffic, and of InfiniBand ports as sysfs shows them."""

import contextlib
import os
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from monitors import nccl_log, ports, sysinfo
from monitors.host import CpuSampler, FrequencySampler
from monitors.ports import PortSampler
from monitors.sampler import Unavailable
from run_benchmarks.results.samples.summary import MAX_PORTS, PortIncreases
from tests.monitors.fabric_tree import rdma_port, write
from tests.monitors.running import Monitor

DATAGRAMS, BYTES = 50, 1000
HEADERS = 14 + 20 + 8  # Ethernet, IPv4, UDP


def sampled(sampler: PortSampler) -> dict[str, dict[str, int]]:
    values = sampler.sample_last()
    assert values is not None
    found: dict[str, dict[str, int]] = values["ports"]
    return found


@pytest.fixture
def veth() -> Iterator[str]:
    """One end of a veth pair with an address; the other end is in a namespace of its own."""
    name, space = f"cdp{os.getpid() % 10**6}", f"cdp{os.getpid()}"

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True, timeout=10)

    try:
        ip("netns", "add", space)
        ip("link", "add", name, "type", "veth", "peer", "name", "far", "netns", space)
        ip("addr", "add", "10.213.77.1/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", space, "addr", "add", "10.213.77.2/30", "dev", "far")
        ip("-n", space, "link", "set", "far", "up")
        ip("neigh", "replace", "10.213.77.2", "lladdr", "02:00:00:00:00:01", "dev", name)
        yield name
    finally:
        for words in (("link", "del", name), ("netns", "del", space)):
            with contextlib.suppress(subprocess.SubprocessError):
                ip(*words)


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")
def test_traffic_over_a_real_link_is_counted_to_the_byte(veth: str) -> None:
    sampler, increases = PortSampler(), PortIncreases()
    increases.take(sampled(sampler))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for _ in range(DATAGRAMS):
            sender.sendto(bytes(BYTES), ("10.213.77.2", 9))
    space = f"cdp{os.getpid()}"
    subprocess.run(["ip", "-n", space, "link", "set", "far", "down"], check=True, timeout=10)
    increases.take(sampled(sampler))
    sampler.close()
    counted = increases.found[veth]
    # The kernel may add frames of its own (IPv6 router solicitations) while the link is young.
    assert DATAGRAMS <= counted["tx_packets"] <= DATAGRAMS + 20
    assert DATAGRAMS * (BYTES + HEADERS) <= counted["tx_bytes"] <= DATAGRAMS * (BYTES + HEADERS) + 20 * 200
    assert counted["link_downs"] == 1 and counted["tx_errors"] == 0
    assert any(port["name"] == veth and port["is_device"] is False for port in sysinfo.network())


def test_infiniband_counters_have_the_kernels_units_and_only_changes_are_recorded(tmp_path: Path) -> None:
    rdma_port(tmp_path / "ib", "mlx5_0")
    sampler = PortSampler(tmp_path / "no_net", tmp_path / "ib", tmp_path / "no_snmp")
    first = sampled(sampler)["mlx5_0/1"]
    assert (first["rx_bytes"], first["tx_bytes"], first["tx_packets"]) == (4000, 8000, 20)
    assert (first["link_downs"], first["cnp_sent"], first["symbol_errors"]) == (3, 5, 0)
    assert sampler.sample() is None, "5 s have not passed"
    assert sampler.sample_last() is None, "nothing has changed"
    rdma_port(tmp_path / "ib", "mlx5_0", symbol_error=7, port_rcv_data=1001)
    assert sampled(sampler) == {"mlx5_0/1": {"rx_bytes": 4004, "symbol_errors": 7}}
    sampler.close()


def test_ports_whose_bytes_others_count_as_well_are_told_once(tmp_path: Path) -> None:
    counted = {f"{name}/statistics/rx_bytes": 1 for name in ("eth0", "bond0", "ib0")}
    write(tmp_path / "net", {**counted, "eth0/type": 1, "ib0/type": 32, "bond0/lower_eth0/type": 1, "bond0/type": 1})
    sampler = PortSampler(tmp_path / "net", tmp_path / "no_ib", tmp_path / "no_snmp")
    first = sampler.sample()
    assert first is not None and sorted(first["upper"]) == ["bond0", "ib0"] and set(first["ports"]) > {"eth0", "bond0"}
    write(tmp_path / "net", {"eth0/statistics/rx_bytes": 2})
    assert sampler.sample_last() == {"ports": {"eth0": {"rx_bytes": 2}}}
    sampler.close()


def test_a_host_without_ports_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no network port"):
        PortSampler(tmp_path, tmp_path)


def test_an_increase_is_over_the_round_also_where_a_counter_was_reset() -> None:
    found = PortIncreases()
    for value in (100, 130, 5):
        found.take({"mlx5_0/1": {"symbol_errors": value}})
    found.take({"eth0": {"rx_bytes": 9}})
    assert found.found == {"mlx5_0/1": {"symbol_errors": 35}, "eth0": {"rx_bytes": 0}}
    found.take({f"port{number}": {"x": 1} for number in range(2 * MAX_PORTS)})
    assert len(found.found) == MAX_PORTS


def test_ports_are_described_with_state_speed_pcie_and_numa(tmp_path: Path) -> None:
    rdma_port(tmp_path / "ib", "mlx5_0")
    rdma_port(tmp_path / "ib", "mlx5_1", state="1: DOWN", link_layer="Ethernet", current_link_width=8, numa_node=-1)
    net = write(tmp_path / "net", {"eth0/operstate": "up", "eth0/speed": 25000, "eth0/statistics/rx_bytes": 1})
    eth, good, bad = sysinfo.network(net, tmp_path / "ib")
    assert eth == {"name": "eth0", "kind": "interface", "state": "up", "speed_mbit_s": 25000, "is_device": False}
    assert good == {
        "name": "mlx5_0/1",
        "kind": "infiniband",
        "state": "active",
        "speed_mbit_s": 400_000,
        "is_device": True,
        "numa_node": 1,
        "pcie": {"speed_gt_s": 32.0, "max_speed_gt_s": 32.0, "width": 16, "max_width": 16},
    }
    assert (bad["kind"], bad["state"], bad["pcie"]["width"], "numa_node" in bad) == ("ethernet", "down", 8, False)


def test_a_link_can_be_what_both_its_ends_can(tmp_path: Path) -> None:
    """A card for PCIe 5.0 x16 behind a port of 4.0 x8, in folders as the kernel nests them."""
    rdma_port(tmp_path / "ib", "mlx5_0", current_link_speed="16.0 GT/s PCIe", current_link_width=8)
    port = write(tmp_path / "0000:16:01.0", {"max_link_speed": "16.0 GT/s PCIe", "max_link_width": 8})
    card, link = port / "0000:17:00.0", tmp_path / "ib" / "mlx5_0" / "device"
    link.rename(card)
    write(card, {"vendor": "0x15b3", "device": "0x1021", "subsystem_vendor": "0x15b3", "subsystem_device": "0x0023"})
    link.symlink_to(card)
    (found,) = sysinfo.network(tmp_path / "no_net", tmp_path / "ib")
    assert found["pcie"] == {"speed_gt_s": 16.0, "max_speed_gt_s": 16.0, "width": 8, "max_width": 8}
    assert found["model"] == "0x15b3:0x1021:0x15b3:0x0023"


def test_accelerators_are_described_by_pci_address(tmp_path: Path) -> None:
    write(tmp_path / "0000:17:00.0", {"class": "0x030200", "numa_node": 0, "max_link_width": 16})
    write(tmp_path / "0000:18:00.0", {"class": "0x020700", "numa_node": 0})
    assert sysinfo.accelerators(tmp_path) == [{"address": "0000:17:00.0", "numa_node": 0}]


def test_statistics_of_a_driver_are_read_and_pauses_among_them_summed(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match=r"No such device|not supported"):
        ports.statistic_names("no-such-port")
    assert ports.pause_counts("no-such-port") == {}
    for name in ("rx_prio3_pause", "tx_pause_ctrl_phy", "rx_pfc_ena_frames_pri3"):
        assert ports.PAUSE.match(name)
    for name in ("rx_prio3_pause_duration", "rx_prio3_bytes", "rx_pause_us"):
        assert not ports.PAUSE.match(name)
    names = ["rx_bytes", "rx_prio3_pause", "tx_prio3_pause", "rx_prio4_pause"]
    monkeypatch.setattr(ports, "statistic_names", lambda _: names)
    monkeypatch.setattr(ports, "_call", lambda *_: struct.pack("II4Q", 0, 4, 1000, 5, 7, 30))
    assert ports.pause_counts("fake-port") == {"pause_rx": 35, "pause_tx": 7}


@pytest.mark.skipif(os.geteuid() != 0, reason="makes a network namespace")
def test_a_real_driver_names_its_statistics(veth: str) -> None:
    assert "peer_ifindex" in ports.statistic_names(veth)
    assert ports.pause_counts(veth) == {}, "a veth has none"


LOG = """
node1:812:901 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
node1:812:901 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB; OOB eth0:10.0.0.1<0>
node1:812:901 [0] NCCL INFO Using network {network}
node1:812:910 [0] NCCL INFO Channel 00/0 : 7[7] -> 8[0] [receive] via NET/{network}/0/GDRDMA
node1:812:910 [0] NCCL INFO Channel 01/0 : 0[0] -> 15[7] [send] via NET/{network}/1
node1:812:910 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
[PerfLog] {{"event": "STEP_END"}}
"""


def test_nccls_choice_is_read_from_the_ranks_logs(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank{rank}.out.log").write_text(LOG.format(network="IB"))
    environment = {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5", "PATH": "/bin"}
    assert nccl_log.describe(tmp_path, environment) == {
        "variables": {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5"},
        "networks": {"IB": 2},
        "transports": {"NET/IB": 4, "P2P": 2},
        "devices": {"NET/IB/0": 2, "NET/IB/1": 2},
        "version": "2.27.3+cuda12.9",
    }
    assert nccl_log.describe(tmp_path, {"NCCL_DEBUG": "WARN"}) == {"variables": {"NCCL_DEBUG": "WARN"}}


def test_frequencies_are_those_of_a_few_cores(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        FrequencySampler(tmp_path)
    write(tmp_path, {f"cpu{core}/cpufreq/scaling_cur_freq": 2_000_000 + core for core in range(64)})
    sampler = FrequencySampler(tmp_path)
    values = sampler.sample()
    assert values is not None and 2000 <= values["min_mhz"] <= values["mhz"] < 2001
    assert sampler.sample() is None


def test_the_hypervisors_share_is_sampled() -> None:
    assert 0 <= CpuSampler(per_core=False).sample()["steal_percent"] <= 100


def test_a_monitor_records_ports_and_describes_the_network(tmp_path: Path) -> None:
    with Monitor(tmp_path, "--max_seconds=2", "--interval=0.5") as monitor:
        monitor.end()
        found: list[dict[str, Any]] = monitor.records()
    ports = [record["values"]["ports"] for record in found if record["source"] == "ports" and "values" in record]
    if not any(name != "lo" for name in [each.name for each in Path("/sys/class/net").iterdir()]):
        assert ports == []
        return
    assert ports and all("rx_bytes" in counters for name, counters in ports[0].items() if name != "tcp")
