"""What a host's monitor saw of its network becomes findings; what a host made up does not."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.results.drain import drain_list, not_yet_said
from run_benchmarks.results.host_findings import host_findings, usual_links
from run_benchmarks.results.monitor_readings import read_sys_info, sight_of
from run_benchmarks.results.verdict import Verdict
from run_benchmarks.rounds.recording import with_findings
from tests.run_benchmarks.results.network_rounds import a_round, case

SLOT = {"speed_gt_s": 32.0, "max_speed_gt_s": 32.0, "width": 16, "max_width": 16}


def port(name: str = "mlx5_0/1", **changes: Any) -> dict[str, Any]:
    values = {"name": name, "kind": "infiniband", "state": "active", "speed_mbit_s": 400_000, "is_device": True}
    values["model"] = "0x15b3:0x1021:0x15b3:0x0023"
    return {**values, "pcie": SLOT, **changes}


def found(folder: Path, ports: Any, nccl: Any = None, monitor: Any = None) -> list[tuple[str, str, str, str]]:
    """(device, kind, severity, evidence) of the findings of a host with this sys_info.json."""
    (folder / "sys_info.json").write_text(json.dumps({"network": ports, "nccl": nccl}))
    findings = host_findings("n1", read_sys_info(folder), monitor)
    assert all(each.hosts == ("n1",) and each.drained_hosts == () for each in findings)
    return [(each.device, each.kind, each.severity, each.evidence) for each in findings]


def test_a_healthy_host_has_none(tmp_path: Path) -> None:
    counters = {"mlx5_0/1": {"rx_bytes": 5, "symbol_errors": 0, "cnp_sent": 9, "tx_dropped": 3}}
    assert found(tmp_path, [port(), port("mlx5_1/1")], {"networks": {"IB": 8}}, {"ports": counters}) == []
    assert found(tmp_path, [], {"networks": {"Socket": 8}}) == [], "there is nothing but sockets"
    assert found(tmp_path, [port(state="down")], {"networks": {"Socket": 8}}) == []


def test_sockets_beside_infiniband_are_a_fault(tmp_path: Path) -> None:
    ((device, kind, severity, evidence),) = found(tmp_path, [port()], {"networks": {"Socket": 8}})
    assert (device, kind, severity) == ("", "transport", "fault")
    assert evidence == "NCCL uses NET/Socket, although mlx5_0/1 is active"


def test_errors_of_a_port_are_a_warning_and_those_of_a_veth_are_not(tmp_path: Path) -> None:
    counters = {name: {"symbol_errors": 4, "link_downs": 1} for name in ("mlx5_0/1", "veth1")}
    ports = [port(), port("veth1", kind="interface", is_device=False)]
    assert found(tmp_path, ports, None, {"ports": counters}) == [
        ("mlx5_0/1", "link_errors", "warning", "4 symbol errors, 1 link downs during the round")
    ]


def test_a_slow_port_and_a_narrow_slot_are_warnings(tmp_path: Path) -> None:
    ports = [port(), port("mlx5_1/1", speed_mbit_s=200_000), port("mlx5_2/1", pcie={**SLOT, "width": 8})]
    assert found(tmp_path, ports) == [
        ("mlx5_1/1", "link_speed", "warning", "its link runs at 200 Gbit/s, others of its model on this host at 400"),
        ("mlx5_2/1", "link_speed", "warning", "its PCIe link is 32 GT/s x8; it can be 32 GT/s x16"),
    ]


def test_a_slower_nic_of_another_model_is_no_finding(tmp_path: Path) -> None:
    """Eight ports for the ranks' traffic at 400 Gbit/s, and two for storage that are made for 200."""
    storage = {"model": "0x15b3:0x101b:0x15b3:0x0007", "speed_mbit_s": 200_000}
    ports = [port(f"mlx5_{number}/1", **(storage if number > 7 else {})) for number in range(10)]
    assert found(tmp_path, ports) == []
    ports[9]["speed_mbit_s"] = 100_000
    assert [device for device, *_ in found(tmp_path, ports)] == ["mlx5_9/1"]


def test_what_most_hosts_have_at_a_port_is_no_finding_there_and_less_is() -> None:
    """A board that leaves a port eight lanes, behind a switch of 200 Gbit/s for a NIC that can do 400."""
    narrow = port("mlx5_9/1", speed_mbit_s=200_000, pcie={**SLOT, "width": 8})
    infos = {f"n{number}": {"network": [port(), narrow]} for number in range(4)}
    infos["n3"] = {"network": [port(speed_mbit_s=200_000), {**narrow, "pcie": {**SLOT, "width": 4}}]}
    for hosts, known in ((4, ["mlx5_0/1", "mlx5_9/1"]), (2, [])):
        usual = usual_links([sight_of(host, info, None) for host, info in list(infos.items())[:hosts]])
        assert sorted(usual) == known
        said = [
            (each.hosts[0], each.evidence) for host in infos for each in host_findings(host, infos[host], None, usual)
        ]
        if known:
            assert said == [
                ("n3", "its link runs at 200 Gbit/s, that of most hosts at 400"),
                ("n3", "its PCIe link is 32 GT/s x4; it can be 32 GT/s x16"),
            ]
        else:
            assert {host for host, _ in said} == set(infos), "two hosts do not show what is usual"


def test_a_port_that_was_split_has_fewer_lanes_than_at_most_hosts_though_all_that_it_can() -> None:
    infos = {f"n{number}": {"network": [port()]} for number in range(4)}
    infos["n3"] = {"network": [port(pcie={**SLOT, "width": 8, "max_width": 8})]}
    usual = usual_links([sight_of(host, info, None) for host, info in infos.items()])
    said = [(each.hosts[0], each.evidence) for host in infos for each in host_findings(host, infos[host], None, usual)]
    assert said == [("n3", "its PCIe link is x8, that of most hosts x16")]


@pytest.mark.parametrize(
    "ports", [None, 7, "x", [1, None], [{"is_device": True}], [port(pcie="x", speed_mbit_s="fast", model=[1])]]
)
@pytest.mark.parametrize("nccl", [None, [], {"networks": 3}])
def test_what_is_no_description_is_passed_over(ports: Any, nccl: Any, tmp_path: Path) -> None:
    for monitor in (None, {}, {"ports": 3}, {"ports": {"mlx5_0/1": {"symbol_errors": "many"}}}):
        assert found(tmp_path, ports, nccl, monitor) == []
    (tmp_path / "sys_info.json").write_text("{")
    assert read_sys_info(tmp_path) == {} and read_sys_info(tmp_path / "nowhere") == {}
    (tmp_path / "sys_info.json").unlink()
    os.mkfifo(tmp_path / "sys_info.json")
    assert read_sys_info(tmp_path) == {}, "nobody writes into this pipe"


def test_they_degrade_a_round_that_passed(tmp_path: Path) -> None:
    (tmp_path / "sys_info.json").write_text(json.dumps({"network": [port()], "nccl": {"networks": {"Socket": 1}}}))
    record = with_findings(case(), a_round([]), host_findings("n1", read_sys_info(tmp_path), None))
    assert record.verdict is Verdict.DEGRADED and record.findings[0].kind == "transport"


def test_a_device_and_a_port_that_fail_in_the_second_of_three_rounds_are_named_with_that_round() -> None:
    """What a run says after each of its rounds, by the monitor of each."""
    rounds = []
    for number in (1, 2, 3):
        ports = {"mlx5_0/1": {"symbol_errors": 4 if number == 2 else 0}}
        monitor = {"devices": [{"index": 0, "lost": number == 2}], "ports": ports}
        findings = host_findings("n1", {"network": [port()]}, monitor)
        rounds.append(a_round([]).model_copy(update={"round": number, "findings": findings}))
    said = [*not_yet_said([], rounds)]
    assert [each.partition(": ")[0] for each in said] == ["round 2", "round 2"]
    assert "accelerator 0" in said[0] and "mlx5_0/1" in said[1]
    (drained,) = drain_list({"A": rounds})
    assert drained.host == "n1" and drained.reasons[0].startswith("A round 2: ")
    assert [each.rounds for each in drained.evidence] == [[2]]
