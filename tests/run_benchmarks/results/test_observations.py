"""What the monitors saw on a bad host, and at no peer, stands beside its finding, down to the NIC."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from protocol.finding import MAX_OBSERVATIONS, PartFinding
from run_benchmarks.report.html import write_report
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.monitor_readings import Sight, sight_of
from run_benchmarks.results.observations import with_observations
from run_benchmarks.results.remarks import Integrity, Remark
from run_benchmarks.rounds.recording import with_findings
from run_benchmarks.session.log_lines import log_round
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.rounds import run_record
from tests.training.benchmarks.network.fabrics import Ailment, Fabric, steps
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.slow_parts.analysis import analyse_scan
from training.benchmarks.network.slow_parts.findings import to_json
from training.benchmarks.network.slow_parts.judge import Bounds
from training.benchmarks.network.slow_parts.readings import scan_of

BAD, HOSTS = "10.0.0.3", [f"10.0.0.{n}" for n in range(1, 5)]
COUNTERS = {
    "rx_bytes": 10**9,
    "symbol_errors": 0,
    "link_downs": 0,
    "retransmits": 4,
    "rx_dropped": 15,
    "xmit_wait": 900,
}
SLOT = {"speed_gt_s": 32.0, "max_speed_gt_s": 32.0, "width": 16, "max_width": 16}


def finding(*hosts: str, **changes: Any) -> PartFinding:
    return PartFinding(
        **{
            "part": "host" if len(hosts) == 1 else "link",
            "hosts": hosts,
            "kind": "constant",
            "evidence": "slow",
            "suggested_action": "drain",
            "sentence": f"{'-'.join(hosts)}: slow",
            **changes,
        }
    )


def sight(host: str, monitor: dict[str, Any] | None = None, info: dict[str, Any] | None = None, **port: Any) -> Sight:
    """A host with two NICs; `port` changes the description of mlx5_4/1, the others are as they should be."""
    ports = [
        {
            "name": name,
            "kind": "infiniband",
            "state": "active",
            "speed_mbit_s": 400_000,
            "is_device": True,
            "pcie": SLOT,
        }
        for name in ("mlx5_0/1", "mlx5_4/1")
    ]
    ports[1] |= port
    seen = {"ports": {"mlx5_0/1": COUNTERS, "mlx5_4/1": COUNTERS}, "cpu_percent": {"mean": 40.0}}
    described = {
        "network": ports,
        "pci_accelerators": [{"address": "0000:1b:00.0", "pcie": SLOT}],
        "nccl": {"networks": {"IB": 8}},
    }
    return sight_of(host, described | (info or {}), seen | (monitor or {}))


def observed(bad: Sight, *findings: PartFinding, remarks: list[Remark] | None = None) -> list[tuple[str, ...]]:
    sights = [bad if host == BAD else sight(host) for host in HOSTS]
    return [each.observations for each in with_observations(findings or [finding(BAD)], sights, remarks or [])]


def test_a_host_like_its_peers_explains_nothing() -> None:
    assert observed(sight(BAD)) == [()]
    assert observed(sight(BAD, {"ports": {"mlx5_0/1": {**COUNTERS, "rx_dropped": 45, "xmit_wait": 2700}}})) == [()]
    assert with_observations([], [sight(BAD)]) == []


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        (
            {"monitor": {"ports": {"mlx5_4/1": {"symbol_errors": 1}}}},
            "mlx5_4/1: 1 symbol errors, at most 0 at the peers",
        ),
        ({"monitor": {"ports": {"tcp": {"retransmits": 20}}}}, "tcp: 20 retransmits, at most 4 at the peers"),
        ({"monitor": {"ports": {"eth0": {"rx_dropped": 46}}}}, "eth0: 46 rx dropped, at most 15 at the peers"),
        ({"speed_mbit_s": 200_000}, "mlx5_4/1: its link runs at 200 Gbit/s, at the peers at 400"),
        (
            {"pcie": {**SLOT, "width": 8}},
            "mlx5_4/1: its PCIe link is 32 GT/s x8, at the peers 32 GT/s x16",
        ),
        (
            {"info": {"pci_accelerators": [{"address": "0000:1b:00.0", "pcie": {**SLOT, "width": 4}}]}},
            "accelerator 0000:1b:00.0: its PCIe link is x4, at the peers x16",
        ),
        ({"info": {"nccl": {"networks": {"Socket": 8}}}}, "NCCL uses NET/Socket, at the peers NET/IB"),
        ({"monitor": {"cpu_percent": {"mean": 65.0}}}, "CPU use 65.0 %, at most 40.0 % at the peers"),
    ],
)
def test_what_only_the_bad_host_shows(bad: dict[str, Any], text: str) -> None:
    assert observed(sight(BAD, **bad)) == [(text,)]


def test_clocks_steal_heat_and_ecc_are_compared_with_the_peers() -> None:
    def running(clock: float, heat: float, errors: int, steal: float, mhz: float) -> dict[str, Any]:
        device = {"sm_clock_mhz": {"mean": clock}, "temperature_c": {"mean": heat}, "ecc_uncorrected": errors}
        usual = {"sm_clock_mhz": {"mean": 1900.0}, "temperature_c": {"mean": 60.0}, "ecc_uncorrected": 0}
        return {"devices": [usual, device], "steal_percent": {"mean": steal}, "cpu_mhz": {"mean": mhz}}

    peers = [sight(host, running(1900.0, 60.0, 0, 0.1, 3000.0)) for host in HOSTS if host != BAD]
    for values, found in (
        ((1900.0, 60.0, 0, 0.1, 3000.0), ()),
        ((1720.0, 69.0, 0, 2.0, 2710.0), ()),
        (
            (1200.0, 85.0, 3, 7.5, 1200.0),
            (
                "CPU steal 7.5 %, at most 0.1 % at the peers",
                "CPU frequency 1200 MHz, at least 3000 MHz at the peers",
                "clock of the slowest accelerator 1200 MHz, at least 1900 MHz at the peers",
                "hottest accelerator 85 C, at most 60 C at the peers",
                "3 uncorrected ECC errors, at most 0 at the peers",
            ),
        ),
    ):
        (named,) = with_observations([finding(BAD)], [*peers, sight(BAD, running(*values))])
        assert named.observations == found


def test_a_bad_device_shows_its_own_port_alone() -> None:
    bad = sight(BAD, {"ports": {name: {**COUNTERS, "link_downs": 2} for name in ("mlx5_0/1", "mlx5_4/1")}})
    text = "mlx5_4/1: 2 link downs, at most 0 at the peers"
    assert observed(bad, finding(BAD, part="device", device="mlx5_4")) == [(text,)]
    (every,) = observed(bad, finding(BAD, part="device", device="rail 3"))
    assert len(every) == 2, "its NIC is unknown: it may be any"


def test_other_named_hosts_are_no_peers_and_groups_have_none() -> None:
    bad = sight(BAD, {"ports": {"mlx5_4/1": {"symbol_errors": 9}}})
    sights = [sight("n1"), sight("n2", {"ports": {"mlx5_0/1": {"symbol_errors": 7}}}), bad]
    link, group = finding("n2", BAD), finding("n1", "n2", BAD, part="group")
    both, rest = with_observations([link, group], sights)
    assert both.observations == (
        "n2: mlx5_0/1: 7 symbol errors, at most 0 at the peers",
        f"{BAD}: mlx5_4/1: 9 symbol errors, at most 0 at the peers",
    )
    assert rest.observations == ()
    (alone,) = with_observations([finding("n1", "n2")], sights[:2])
    assert alone.observations == (), "without a peer there is nothing to compare with"


def test_a_remark_on_the_host_alone_is_an_observation() -> None:
    def remark(kind: str, host: str) -> Remark:
        return Remark(kind=kind, host=host, detail="device 0: hw_slowdown")

    alone = [remark("throttled", BAD), remark("throttled", BAD), remark("another run", BAD)]
    assert observed(sight(BAD), remarks=alone) == [("throttled: device 0: hw_slowdown",)]
    assert observed(sight(BAD), remarks=[*alone, remark("throttled", HOSTS[0])]) == [()]


@pytest.mark.parametrize(
    "info", [{}, {"network": 3, "nccl": 4}, {"network": [1, {"name": 5}], "nccl": {"networks": []}}]
)
@pytest.mark.parametrize(
    "monitor", [None, {"ports": 3, "devices": 7}, {"ports": {"e": {"retransmits": 10**999}}, "cpu_mhz": {"mean": "x"}}]
)
def test_what_a_host_makes_up_is_left_out(info: dict[str, Any], monitor: dict[str, Any] | None) -> None:
    made_up = sight_of(BAD, info, monitor)
    assert observed(made_up) == [()]
    assert with_observations([finding(HOSTS[0])], [made_up, sight(HOSTS[0])])[0].observations == ()


def test_a_host_cannot_fill_a_finding() -> None:
    (many,) = observed(sight(BAD, {"ports": {f"p{n}": {"symbol_errors": 5} for n in range(200)}}))
    assert len(many) == MAX_OBSERVATIONS


def test_a_bad_nic_is_named_from_the_scan_to_the_drain_list(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ranks on four hosts with two NICs each: what rank 0 finds, under the user's names, in every place."""
    scan = scan_of(steps(Fabric(1, 4, rails=2), Ailment(rate={(2, "rail 1"): 0.5}), 1, pattern="rail_pairs"))
    nics = {(node, rail): f"mlx5_{4 * rail}" for node in range(4) for rail in range(2)}
    found = analyse_scan(scan, Bounds(slow_percent=15.0), Topology(devices=nics))
    assert found is not None and [each.subject for each in found.findings] == ["node3 mlx5_4"]
    said = json.loads(json.dumps([to_json(each) for each in found.findings]))
    bad = sight(BAD, {"ports": {"mlx5_4/1": {"symbol_errors": 42}}}, pcie={**SLOT, "width": 8})
    measured = a_round([], findings=said).model_copy(update={"integrity": Integrity()})
    record = with_findings(case(), measured, (), [bad if host == BAD else sight(host) for host in HOSTS])
    (named,) = record.findings
    assert (named.part, named.hosts, named.device, named.drained_hosts) == ("device", (BAD,), "mlx5_4", (BAD,))
    errors, narrow = named.observations
    assert errors == "mlx5_4/1: 42 symbol errors, at most 0 at the peers" and "x8, at the peers 32 GT/s x16" in narrow
    (drained,) = drain_list({"PAIRS": [record]})
    assert drained.host == BAD and drained.reasons[0].startswith(f"PAIRS round 1: {BAD} mlx5_4: all its pairs are ")
    with caplog.at_level(logging.WARNING):
        log_round(record)
    assert f"; seen there: {errors}; {narrow}" in caplog.text
    run = run_record({}).model_copy(update={"cases": [case()], "drain": [drained]})
    page = write_report(tmp_path, run, [record]).read_text()
    assert f"seen there: {errors}" in page and drained.evidence[0].evidence in page
