"""An accelerator that breaks in a round is named: a real monitor and nvidia-ml-py on a library of scripted devices."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from run_benchmarks.acceptance.suspects import not_run_in
from run_benchmarks.results.device_findings import device_findings, models_of, unlinked_hosts, unseen_hosts
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.host_findings import host_findings
from run_benchmarks.results.verdict import Verdict
from run_benchmarks.rounds.recording import _seen_by_monitors, with_findings
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.recorded_runs import a_run
from tests.vendors.scripted import compiled, watched

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
Watch = Callable[[str], dict[str, Any]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def watch(library: Path, tmp_path: Path) -> Watch:
    return lambda script: watched(library, tmp_path / "log", script)


def told(monitor: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    found = list(device_findings("n1", monitor))
    assert all((each.drained_hosts == ("n1",)) == (each.severity == "fault") for each in found)
    return [(each.device, each.kind, each.severity, each.evidence) for each in found]


def test_each_way_to_break_is_found_and_told_apart_from_healthy_devices(watch: Watch) -> None:
    script = (
        "0:down@0=2 1:ecc@3=2 2:heat@2=96 3:lost@4=1 5:xid@3=79 6:nvlink@2=12 7:width@0=8 4:xid@2=13 4:replays@3=9 "
        "6:pending@0=1 7:mig@0=1"
    )
    assert told(watch(script)) == [
        ("accelerator 0", "link_speed", "fault", "2 of 18 NVLinks are down"),
        ("accelerator 1", "memory_errors", "fault", "2 uncorrected ECC errors during the round"),
        ("accelerator 2", "heat", "warning", "96 degrees Celsius; it slows down from 92"),
        ("accelerator 3", "lost", "fault", "lost during the round: NVML: GPU is lost"),
        ("accelerator 4", "device_errors", "warning", "XID 13"),
        ("accelerator 5", "device_errors", "fault", "XID 79"),
        ("accelerator 6", "memory_errors", "warning", "a row of its memory waits to be remapped"),
        ("accelerator 6", "link_errors", "warning", "12 errors on NVLink during the round"),
        ("accelerator 7", "link_speed", "warning", "its PCIe link is x8; it can be x16"),
        ("accelerator 7", "device_errors", "warning", "it is divided: ranks had a part of it"),
    ]


def test_errors_of_links_with_the_counters_of_blackwell_are_found(watch: Watch) -> None:
    script = " ".join(f"{gpu}:newer@0=4" for gpu in range(8))
    assert told(watch(f"{script} 3:newer@2=9")) == [
        ("accelerator 3", "link_errors", "warning", "5 errors on NVLink during the round")
    ]


def test_a_pcie_link_below_its_generation_is_found_under_load_alone(watch: Watch) -> None:
    """An idle device lowers it; one that is slow at first and fast later is sound."""
    script = "2:generation@0=3 3:generation@0=1 3:idle@0=1 4:generation@0=1 4:generation@4=5"
    said = "its PCIe link is of generation 3 under load; it can be of 5"
    assert told(watch(script)) == [("accelerator 2", "link_speed", "warning", said)]


def test_a_gpu_that_did_not_join_the_fabric_of_its_nvlinks_is_named(watch: Watch) -> None:
    joined = " ".join(f"{gpu}:fabric@0=3" for gpu in range(8))
    script = (
        "1:fabric@0=2 2:fabricstatus@0=23 3:fabrichealth@0=1 4:fabrichealth@0=18 5:fabrichealth@0=1282 6:fabric@0=0"
    )
    assert told(watch(f"{joined} {script}")) == [
        ("accelerator 1", "device_errors", "fault", "it has not joined the fabric of its NVLinks"),
        ("accelerator 2", "device_errors", "fault", "it could not join the fabric of its NVLinks: error 23"),
        ("accelerator 3", "link_speed", "fault", "the fabric of its NVLinks gives it a part of its bandwidth"),
        ("accelerator 4", "link_speed", "fault", "its route through the fabric of its NVLinks is unhealthy"),
        ("accelerator 5", "device_errors", "fault", "the fabric of its NVLinks is misconfigured: code 5"),
        ("accelerator 6", "not_run", "warning", "others of its host tell, it does not: NVLink fabric"),
    ]


def xgmi(*links: tuple[int, int]) -> dict[str, Any]:
    states = ({"xgmi_links_up": up, "xgmi_links_down": down} for up, down in links)
    return {"devices": [{"index": index, "states": each} for index, each in enumerate(states)]}


def test_an_xgmi_link_that_is_down_is_a_fault_of_both_its_ends_and_one_that_all_lack_a_warning() -> None:
    said = ("link_speed", "fault", "1 of 7 XGMI links are down")
    assert told(xgmi((7, 0), (6, 1), (6, 1), (7, 0))) == [("accelerator 1", *said), ("accelerator 2", *said)]
    assert {severity for _, _, severity, _ in told(xgmi(*4 * [(5, 2)]))} == {"warning"}
    assert told(xgmi(*4 * [(0, 7)])) == told(xgmi(*4 * [(7, 0)])) == [], "a guest sees all of them down"


def states(*told: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The summary of a host's monitor, of devices that tell these states."""
    return {"devices": [{"index": index, "states": each} for index, each in enumerate(told)], **more}


def test_what_a_device_does_not_tell_beside_others_that_do_is_said_and_passes_nothing() -> None:
    linked, bare = {"nvlinks_up": 18, "nvlinks_down": 0, "rows_failed": 0}, {"nvlinks_up": 0, "nvlinks_down": 0}
    said = "others of its host tell, it does not: remapped rows, NVLinks"
    for lacking in (bare, {}):
        assert told(states(linked, lacking)) == [("accelerator 1", "not_run", "warning", said)]
    assert told(states(bare, {})) == told(states({}, {})) == [], "no host has what none of its devices tells"
    lost = states(linked, {})
    lost["devices"][1] |= {"lost": True}
    assert [kind for _, kind, *_ in told(lost)] == ["lost"]
    seen = list(device_findings("n1", states(linked, bare)))
    judged = with_findings(case(), a_round([]), seen)
    assert judged.verdict is Verdict.DEGRADED and drain_list({"T": [judged]}) == []
    run = replace(a_run("run1", [1.0]), rounds={"T": [judged]})
    assert not_run_in(run) == [f"n1 accelerator 1: {said}"]


def test_what_devices_tell_is_compared_with_those_of_their_name() -> None:
    """A DGX Station A100 has a display card beside its A100s, without links and ECC memory."""
    station = states(*4 * [{"nvlinks_up": 12, "rows_failed": 0}], {})
    names = [{"index": index, "name": "A100" if index < 4 else "DGX Display"} for index in range(5)]
    assert host_findings("n1", {"accelerator": {"devices": names}}, station) == []
    station["devices"][2]["states"] = {}
    (found,) = host_findings("n1", {"accelerator": {"devices": names}}, station)
    assert (found.device, found.kind) == ("accelerator 2", "not_run")
    nonsense: tuple[Any, ...] = (3, [3], [{"index": []}], [{"index": 0, "name": [{}]}])
    for made_up in nonsense:
        assert len(host_findings("n1", {"accelerator": {"devices": made_up}}, station)) >= 1


def test_a_host_whose_accelerators_are_not_seen_beside_hosts_whose_are_is_said() -> None:
    good, blind = states({"rows_failed": 0}), {"devices": [], "unavailable": {"accelerator": "NVML does not start"}}
    mute = states({}, errors={"accelerator_health": ["late", "it hangs"]})
    found = list(unseen_hosts({"n1": good, "n2": blind, "n3": None, "n4": mute}))
    assert [each.sentence for each in found] == [
        "host n2: its accelerators were not seen, those of other hosts were: NVML does not start",
        "host n3: its accelerators were not seen, those of other hosts were",
        "host n4: the state of its accelerators was not seen, that of other hosts' was: it hangs",
    ]
    assert {(each.kind, each.severity, each.drained_hosts) for each in found} == {("not_run", "warning", ())}
    assert not list(unseen_hosts({"n2": blind, "n3": None})), "hosts without accelerators"
    of_cpus = unseen_hosts({"n1": good, "n2": blind, "n3": None, "n4": mute}, are_used=False)
    assert [each.hosts for each in of_cpus] == [("n4",)], "ranks of gloo need none"
    assert not list(unseen_hosts({"n4": mute, "n5": states({}, {})})), "a vendor whose tool tells no state"


@pytest.mark.parametrize(
    ("links", "lack", "action"),
    [
        ({}, "tell of no", "ask the vendor's tool"),
        ({"nvlinks_up": 0, "nvlinks_down": 18}, "have no active", "reset the host; check NVSwitches"),
    ],
)
def test_a_host_without_links_is_told_beside_most_hosts_of_its_kind_that_have_some(
    links: dict[str, int], lack: str, action: str
) -> None:
    """Beside NVIDIA's eight GPUs on NVSwitches: cards without bridges are as many hosts of another model."""
    linked, alone = states({"rows_failed": 0, "nvlinks_up": 18}), states({"rows_failed": 0} | links)
    monitors = {"n1": linked, "n2": alone, "n3": linked, "p1": alone, "p2": alone, "p3": alone}
    models = {host: "H100" if host[0] == "n" else "H100 PCIe" for host in monitors}
    (found,) = unlinked_hosts(monitors, models)
    assert found.sentence == f"host n2: its accelerators {lack} NVLinks, those of 2 of 3 hosts do"
    assert found.suggested_action == action
    assert (found.kind, found.severity, found.drained_hosts) == ("link_speed", "warning", ())
    assert not list(unlinked_hosts({"n1": linked, "n2": alone}, models)), "of two nobody knows which is usual"
    assert not list(unlinked_hosts(monitors | {"n2": {"devices": [{"index": 0}]}, "n4": None}, models)), "it is unseen"


def test_a_round_tells_a_host_without_links_beside_its_kind(tmp_path: Path) -> None:
    linked, alone = states({"rows_failed": 0, "nvlinks_up": 18}), states({"rows_failed": 0})
    nodes: list[Any] = []
    for number, model in enumerate(["H100"] * 4 + ["H100 PCIe"] * 4):
        (folder := tmp_path / str(number)).mkdir()
        told = {"accelerator": {"devices": [{"index": 0, "name": model}]}}
        (folder / "sys_info.json").write_text(json.dumps(told))
        nodes.append(SimpleNamespace(outcome=SimpleNamespace(folder=folder)))
    parts = [SimpleNamespace(host=f"n{number}", monitor=linked if number < 3 else alone) for number in range(8)]
    record: Any = SimpleNamespace(nodes=parts)
    nccl: Any = SimpleNamespace(backend="nccl")
    _, seen = _seen_by_monitors(nodes, record, nccl)
    assert [each.sentence for each in seen] == [
        "host n3: its accelerators tell of no NVLinks, those of 3 of 4 hosts do"
    ]


@pytest.mark.parametrize("junk", [None, 3, "x", [1], {"a": 1}])
def test_what_a_host_makes_up_of_its_devices_is_passed_over(junk: Any) -> None:
    made_up = {"devices": [{"index": 0, "states": junk, "counts": junk}], "errors": junk, "unavailable": junk}
    assert told(made_up) == [] and told({"devices": junk}) == []
    monitors = {"n1": states({"rows_failed": 0}), "n2": made_up, "n3": {"devices": junk, "errors": junk}}
    list(unseen_hosts(monitors))
    assert list(unlinked_hosts(monitors, {})) == [] and models_of({"accelerator": junk}) == ""
    assert models_of({"accelerator": {"devices": junk}}) == ""


def test_cards_that_no_bridges_join_are_healthy(watch: Watch) -> None:
    assert told(watch(" ".join(f"{card}:down@0=18" for card in range(8)))) == []


def test_one_card_without_its_links_is_not(watch: Watch) -> None:
    assert told(watch("3:down@0=18")) == [("accelerator 3", "link_speed", "fault", "18 of 18 NVLinks are down")]


def test_healthy_devices_have_no_finding_and_old_errors_are_told_as_old(watch: Watch) -> None:
    monitor = watch("1:ecc@0=4")
    assert told(monitor) == [
        (
            "accelerator 1",
            "memory_errors",
            "warning",
            "4 uncorrected ECC errors since the driver was loaded, before the round",
        )
    ]
    assert all(device["states"]["nvlinks_up"] == 18 for device in monitor["devices"])


def test_a_device_that_comes_back_is_not_lost(watch: Watch) -> None:
    monitor = watch("3:lost@3=1 3:lost@5=0")
    assert monitor["devices"][3]["errors"], "its error is still recorded"
    assert told(monitor) == []


def test_a_device_that_is_lost_before_the_round_is_named_and_the_others_are_sampled(watch: Watch) -> None:
    monitor = watch("3:lost@0=1")
    assert told(monitor) == [("accelerator 3", "lost", "fault", "lost during the round: NVML: GPU is lost")]
    assert monitor["power"]["accelerator"]["devices"] == [7, 8]


def test_a_sum_of_power_says_how_many_devices_it_is_of(watch: Watch) -> None:
    power = watch("3:lost@4=1 4:nopower@0=1")["power"]["accelerator"]
    assert power["devices"] == [6, 8]


def test_a_round_that_passes_with_a_lost_device_is_degraded_and_its_host_is_drained(watch: Watch) -> None:
    seen = list(device_findings("n1", watch("3:lost@4=1")))
    record = with_findings(case(), a_round([]), seen)
    assert record.verdict is Verdict.DEGRADED
    assert "accelerator 3: lost" in record.reason
    assert [entry.host for entry in drain_list({"CASE": [record]})] == ["n1"]


def test_a_round_that_failed_names_the_device_that_broke_in_it(watch: Watch) -> None:
    failed = a_round([]).model_copy(update={"verdict": Verdict.FAIL, "reason": "rank 3 on n1 was killed"})
    seen = list(device_findings("n1", watch("3:xid@2=79 2:heat@0=96")))
    record = with_findings(case(), failed, seen)
    assert record.verdict is Verdict.FAIL
    assert record.reason == "rank 3 on n1 was killed; n1 accelerator 3: XID 79"
    assert [finding.device for finding in record.findings] == ["accelerator 3"], "heat alone explains no failure"
    assert with_findings(case(), failed, []) is failed


@pytest.mark.parametrize(
    "monitor",
    [
        None,
        {"devices": "all"},
        {
            "devices": [
                None,
                {"index": "x", "lost": True},
                {"index": 1, "counts": [], "states": 5, "temperature_c": "hot"},
            ]
        },
        {
            "devices": [
                {"index": 1, "counts": {"ecc_uncorrected": "9", "xid_x": 3}, "first_counts": {"ecc_uncorrected": []}}
            ]
        },
    ],
)
def test_what_a_host_makes_up_is_passed_over(monitor: Any) -> None:
    assert list(device_findings("n1", monitor)) == []


def test_a_device_that_its_vendor_s_tool_does_not_call_well_is_named() -> None:
    devices = [{"index": index, "states": {"alarm": alarm}} for index, alarm in enumerate((0, 1))]
    assert told({"devices": devices}) == [
        ("accelerator 1", "device_errors", "warning", "the vendor's tool calls its health other than OK")
    ]


def test_clocks_that_a_setting_holds_are_told_of_a_device_that_works() -> None:
    def monitor(held: int, idle: int, samples: int = 40) -> dict[str, Any]:
        throttled = {"applications_clocks_setting": held, "gpu_idle": idle, "sw_power_cap": 3}
        return {"devices": [{"index": 0, "samples": samples, "throttled": throttled}]}

    said = ("accelerator 0", "device_errors", "warning", "a setting held its clocks in 28 of 30 samples")
    assert told(monitor(28, 10)) == [said]
    assert told(monitor(0, 40)) == told(monitor(2, 10)) == told(monitor(0, 0, 0)) == []
    assert told({"devices": [{"index": 0, "samples": "40", "throttled": ["applications_clocks_setting"]}]}) == []
