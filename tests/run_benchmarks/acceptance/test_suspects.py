"""Who is suspected: devices behind their peers, over hundreds of hosts and many draws, and no healthy one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from run_benchmarks.acceptance.climb import Climb, Looked
from run_benchmarks.acceptance.kinds import alike_first, identities_of, kinds_of
from run_benchmarks.acceptance.records import Levels, Usual
from run_benchmarks.acceptance.rungs import HEALTH, SINGLE, Cases
from run_benchmarks.acceptance.suspects import (
    OF_HOST,
    against_datasheet,
    agreed,
    beside_datasheet,
    in_vain,
    not_against,
    slow_devices,
    suspects_of,
    unjudged,
    usual_of,
)
from run_benchmarks.console.language import Words
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import DrainEvidence, DrainRecord, FirstFailure, NodeRecord, RoundRecord, Verdict
from tests.run_benchmarks.acceptance.scripted_cluster import reason
from tests.run_benchmarks.results.network_rounds import a_round
from tests.run_benchmarks.results.recorded_runs import a_run
from tests.tiers import samples

LIMIT, DEVICES = 7.0, 8
LACKING = "--against: not compared, it has no figures that count of"
TESTS = {"matmul_bf16": (700.0, "TFLOPS"), "memory": (3000.0, "GB/s"), "host_to_device": (50.0, "GB/s")}


def measured(hosts: int, noise: float, seed: int, bad: Mapping[int, tuple[str, int | None, float]]) -> RoundRecord:
    """A round of device tests. bad: by host its test, its device (None: all), and the share of speed that is left."""
    draw = random.Random(seed)
    node = a_round([]).nodes[0]
    nodes: list[NodeRecord] = []
    for number in range(hosts):
        ranks = list(range(number * DEVICES, (number + 1) * DEVICES))
        nodes.append(node.model_copy(update={"host": f"n{number}", "node_rank": number, "ranks": ranks}))
    steps = []
    for test, (usual, unit) in TESTS.items():
        values = [usual * (1 + noise * draw.gauss(0, 1)) for _ in range(hosts * DEVICES)]
        for host, (of, device, share) in bad.items():
            for local in range(DEVICES) if device is None else [device]:
                if of == test:
                    values[host * DEVICES + local] *= share
        steps.append({"test": test, "unit": unit, "values_of_ranks": values})
    return a_round(steps).model_copy(update={"nodes": nodes})


@pytest.mark.parametrize("seed", samples(6, 100))
def test_slow_devices_of_512_hosts_are_all_named_and_no_other(seed: int) -> None:
    bad = {
        3: ("matmul_bf16", 5, 0.88),
        77: ("memory", None, 0.9),
        300: ("host_to_device", 0, 0.5),
        511: ("memory", 7, 0.85),
    }
    found = dict(slow_devices(measured(512, 0.01, seed, bad), LIMIT))
    assert set(found) == {f"n{host}" for host in bad}
    assert found["n300"].startswith("device 0: host_to_device ")


@pytest.mark.parametrize("noise", [0.002, 0.01, 0.03])
@pytest.mark.parametrize("seed", samples(4, 60))
def test_healthy_devices_are_not_suspected_however_much_they_scatter(seed: int, noise: float) -> None:
    assert list(slow_devices(measured(64, noise, 1000 + seed, {}), LIMIT)) == []


def test_one_slow_device_of_a_single_host_is_named_and_too_few_devices_are_not_judged() -> None:
    assert dict(slow_devices(measured(1, 0.005, 1, {0: ("memory", 2, 0.8)}), LIMIT)).keys() == {"n0"}
    few = measured(1, 0.0, 1, {0: ("memory", 2, 0.1)})
    few.steps[1]["values_of_ranks"] = few.steps[1]["values_of_ranks"][:3]
    assert list(slow_devices(few, LIMIT)) == []


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("fast", []),
        (None, []),
        ([True] * 8, ["memory: 8 of 8 devices sent no result"]),
        ([0] * 8, ["memory: 8 of 8 devices sent no result"]),
        (["NaN"] * 4 + [3.0] * 4, ["memory: 4 of 8 devices sent no result"]),
        ([1e300, {}, []], ["memory: 3 of 3 devices sent no result"]),
    ],
)
def test_what_most_make_up_suspects_nobody_and_fails_the_rung(values: object, said: list[str]) -> None:
    record = a_round([{"test": "memory", "unit": "GB/s", "values_of_ranks": values}])
    assert list(slow_devices(record, LIMIT)) == []
    assert in_vain(replace(a_run("run1", [1.0]), rounds={"ACCEPT_DEVICES": [record]})) == said


@pytest.mark.parametrize("lie", ["NaN", "Infinity", 1e300, -3000.0, 0, True, "fast", [], 1e12])
def test_a_host_that_makes_up_a_result_is_named_and_the_others_are_judged_as_ever(lie: object) -> None:
    record = measured(4, 0.005, 1, {2: ("memory", 3, 0.5)})
    record.steps[1]["values_of_ranks"][1 * DEVICES + 6] = lie
    found = dict(slow_devices(record, LIMIT))
    assert found.keys() == {"n1", "n2"} and found["n2"].endswith("below its peers' median")
    assert found["n1"].startswith("device 6: memory") and found["n1"].endswith(
        ("which is no result", " times its peers' median")
    )
    assert in_vain(replace(a_run("run1", [1.0]), rounds={"ACCEPT_DEVICES": [record]})) == []


def test_a_device_below_its_datasheet_is_named_where_all_its_peers_are_slow_too() -> None:
    record = measured(1, 0.005, 1, {})
    record.steps[1]["datasheet"] = 5000.0
    said = dict(slow_devices(record, LIMIT))["n0"]
    assert said.startswith("device 7: memory ") and said.endswith(" % of its datasheet, 70 % is the least")
    record.steps[1]["datasheet"] = 3300.0
    assert list(slow_devices(record, LIMIT)) == []


def test_a_datasheet_that_disagrees_with_the_peers_accuses_no_host_and_is_said() -> None:
    record = measured(4, 0.005, 1, {2: ("memory", 3, 0.5)})
    record.steps[1]["datasheet"] = 5000.0
    found = dict(slow_devices(record, LIMIT))
    assert found.keys() == {"n2"} and found["n2"].endswith("below its peers' median")
    run = replace(a_run("run1", [1.0]), rounds={"ACCEPT_DEVICES": [record]})
    (said,) = against_datasheet(run)
    assert said.startswith("memory: 32 of 32 devices are below 70 % of the datasheet's 5000 GB/s: it disagrees with")
    usual = usual_of(replace(run, rounds={"D": [measured(4, 0.005, 2, {})]}), [])
    assert against_datasheet(run, usual) == [] and beside_datasheet(run, usual) == [said], "and what was usual judges"
    assert beside_datasheet(run, {}) == [] and dict(slow_devices(record, LIMIT, usual)).keys() == {"n2"}
    record.steps[1]["datasheet"] = 2300.0
    (low,) = beside_datasheet(run, {})
    assert low.startswith("memory: the median is 130 % of the datasheet's 2300 GB/s: it disagrees with the peers")
    assert against_datasheet(run) == []
    record.steps[1]["datasheet"] = 3300.0
    assert (
        against_datasheet(run) == beside_datasheet(run, {}) == []
        and "% of its datasheet" in dict(slow_devices(record, LIMIT))["n2"]
    )


def of_a_tool(values: list[float | None], better: str = "higher", tool: str = "ib_write_bw_loopback") -> RoundRecord:
    """A round of a tool of others, one process on each host."""
    figure = {"test": "ib_write_bw mlx5_0", "unit": "GB/s", "better": better, "values_of_ranks": values}
    node = a_round([]).nodes[0]
    nodes = [
        node.model_copy(update={"host": f"n{number}", "node_rank": number, "ranks": [number]})
        for number in range(len(values))
    ]
    return a_round([{"tool": tool, "figures": [figure]}]).model_copy(update={"nodes": nodes})


def test_a_tools_figures_are_held_to_accepted_ones_and_its_peers_are_judged_by_its_benchmark() -> None:
    good = replace(a_run("run1", [1.0]), rounds={"ACCEPT_TOOLS": [of_a_tool([11.5, 11.6, 11.4, None, 11.5])]})
    usual = usual_of(good, ["n4"])
    level = usual[""]["ib_write_bw mlx5_0"]
    assert (level.median, level.devices) == (11.5, 3)
    assert list(slow_devices(of_a_tool([11.5, 11.6, 7.0, 11.5]), LIMIT)) == []
    said = dict(slow_devices(of_a_tool([11.5, None, 7.0]), LIMIT, usual))
    assert said == {"n2": "ib_write_bw mlx5_0 7 GB/s, 39 % below 3 accepted ones"}
    slow = dict(slow_devices(of_a_tool([11.5, 23.0], "lower"), LIMIT, usual))
    assert slow == {"n1": "ib_write_bw mlx5_0 23 GB/s, 100 % above 3 accepted ones"}


def test_a_collectives_times_of_many_hosts_are_not_those_of_few() -> None:
    """NCCL Inspector's: the more hosts take part, the longer a collective takes."""
    few = replace(a_run("run1", [1.0]), rounds={"ACCEPT_TOOLS": [of_a_tool([90.0] * 4, tool="inspector")]})
    assert usual_of(few, []) == {}
    usual = {"": {"ib_write_bw mlx5_0": Usual(unit="GB/s", median=900.0, scatter=1.0, devices=64)}}
    assert suspects_of(few, LIMIT, usual) == {}, "of an earlier version"


def test_of_a_slow_pair_of_two_hosts_neither_is_named() -> None:
    """With a third host the figure of each is the best of two neighbours."""
    usual = {"": {"ib_write_bw mlx5_0": Usual(unit="GB/s", median=11.5, scatter=0.1, devices=64)}}
    two = replace(a_run("run1", [1.0]), rounds={"ACCEPT_TOOLS": [of_a_tool([7.0, 7.0], tool="ib_write_bw")]})
    assert suspects_of(two, LIMIT, usual) == {} and usual_of(two, []) == {}
    assert not_against(two, usual) == [f"{LACKING} ib_write_bw mlx5_0"]
    three = replace(two, rounds={"ACCEPT_TOOLS": [of_a_tool([7.0, 11.5, 11.4], tool="ib_write_bw")]})
    assert suspects_of(three, LIMIT, usual).keys() == {"n0"}
    assert usual_of(three, ["n0"])[""]["ib_write_bw mlx5_0"].devices == 2


def of_test(test: str, values: Sequence[float | None], **more: object) -> RoundRecord:
    """A round of one test on hosts with DEVICES ranks each."""
    made = measured(len(values) // DEVICES, 0.0, 1, {})
    return made.model_copy(update={"steps": [{"test": test, "unit": "GB/s", "values_of_ranks": values, **more}]})


@pytest.mark.parametrize("test", ["disk_write", "disk_read", "data_read", "data_write"])
@pytest.mark.parametrize("seed", samples(5, 100))
def test_a_slow_disk_is_named_once_with_what_to_look_at_and_no_other(test: str, seed: int) -> None:
    draw = random.Random(seed)
    values = [2 * (1 + 0.08 * draw.gauss(0, 1)) for _ in range(16 * DEVICES)]
    assert list(slow_devices(of_test(test, values), LIMIT)) == [], "disks scatter more than devices"
    values[8:16] = [value / 3 for value in values[8:16]]
    ((host, said),) = slow_devices(of_test(test, values), LIMIT)
    assert host == "n1" and said.startswith(f"{test} {min(values[8:16]):.4g} GB/s, ")
    assert f"below its peers' median: look at the disk {'or mount ' if test[:4] == 'data' else ''}of the " in said


def test_disks_of_two_models_are_compared_each_with_its_own() -> None:
    """Ten hosts with a fast one, six with one half as fast, of which one is slower than its like."""
    fast = 10 * DEVICES
    values: list[float | None] = [6.0 + 0.01 * (rank % 7) if rank < fast else 2.5 for rank in range(16 * DEVICES)]
    models = {
        "disk_models": ["PM9A3", "S4510"],
        "disk_model_of_ranks": [int(rank >= fast) for rank in range(len(values))],
    }
    assert {host for host, _ in slow_devices(of_test("disk_read", values), LIMIT)} == {f"n{n}" for n in range(10, 16)}
    assert list(slow_devices(of_test("disk_read", values, **models), LIMIT)) == []
    values[12 * DEVICES : 13 * DEVICES] = [0.8] * DEVICES
    ((host, _),) = slow_devices(of_test("disk_read", values, **models), LIMIT)
    assert host == "n12"
    run = replace(a_run("run1", [1.0]), rounds={"D": [of_test("disk_read", values, **models)]})
    usual = usual_of(run, ["n12"])
    assert {key: level.devices for key, level in usual[""].items()} == {
        "disk_read on PM9A3": fast, "disk_read on S4510": 5 * DEVICES
    }  # fmt: skip
    few = of_test("disk_read", values[: 4 * DEVICES], **models | {"disk_model_of_ranks": [0] * 24 + [1] * 8})
    few.steps[0]["values_of_ranks"][24:] = ["NaN"] * 8
    said = dict(slow_devices(few, LIMIT))
    assert said.keys() == {"n3"} and said["n3"].endswith("which is no result"), "the only one of its model, of four"
    few.steps[0]["values_of_ranks"] = ["NaN"] * 24 + [2.5] * 8
    vain = replace(run, rounds={"D": [few]})
    assert in_vain(vain) == ["disk_read on PM9A3: 24 of 24 devices sent no result"]
    few.steps[0]["values_of_ranks"] = [6.0] * 24 + [2.5, *[None] * 7]
    assert unjudged(vain, {}) == ["disk_read on S4510: measured, not judged: 4 devices alike are compared, there are 1"]
    one = of_test("disk_read", [0.8] * DEVICES, disk_models=["S4510"])
    assert [host for host, _ in slow_devices(one, LIMIT, usual)] == ["n0"]
    assert list(slow_devices(of_test("disk_read", [0.8] * DEVICES, disk_models=[""]), LIMIT, usual)) == []


@pytest.mark.parametrize("told", [None, 3, [None], ["a", "b"], {"a": 1}])
@pytest.mark.parametrize("of_ranks", [None, "x", [9] * DEVICES, [[]] * DEVICES, [0]])
def test_a_host_may_send_any_models_of_disks(told: object, of_ranks: object) -> None:
    record = of_test("disk_read", [2.0] * DEVICES, disk_models=told, disk_model_of_ranks=of_ranks)
    assert list(slow_devices(record, LIMIT)) == []


@pytest.mark.parametrize("seed", samples(5, 100))
def test_a_slow_pair_of_devices_is_found_beside_the_same_pair_of_other_hosts(seed: int) -> None:
    """Devices of one half of a host reach each other four times as fast as those of the other half."""
    draw = random.Random(seed)

    def row(own: int) -> list[float | None]:
        fast = [200.0 if own // 4 == peer // 4 else 50.0 for peer in range(DEVICES)]
        return [None if peer == own else rate * (1 + 0.01 * draw.gauss(0, 1)) for peer, rate in enumerate(fast)]

    rows = [row(rank % DEVICES) for rank in range(6 * DEVICES)]
    values = [max(value for value in each if value is not None) for each in rows]
    assert list(slow_devices(of_test("peers", values, peers_of_ranks=rows), LIMIT)) == []
    rows[2 * DEVICES + 3][6] = 25.0
    ((host, said),) = slow_devices(of_test("peers", values, peers_of_ranks=rows), LIMIT)
    assert host == "n2" and said.startswith("device 3 to 6: 25 GB/s, ") and said.endswith("look at their link")
    three = of_test("peers", values[:24], peers_of_ranks=rows[:24])
    assert list(slow_devices(three, LIMIT)) == [], "of three hosts"
    good = of_test("peers", values, peers_of_ranks=[row(rank % DEVICES) for rank in range(6 * DEVICES)])
    usual = usual_of(replace(a_run("run1", [1.0]), rounds={"D": [good]}), ["n5"])
    assert usual[""]["peers 3 to 6"].devices == 5
    (said,) = (said for host, said in slow_devices(three, LIMIT, usual) if host == "n2")
    assert said.startswith("device 3 to 6: 25 GB/s, 50 % below 5 accepted ones: ")


LINKS: Mapping[str, Callable[[int, int], float]] = {
    "a switch": lambda one, other: 200.0,
    "two halves": lambda one, other: 50.0 if one // 4 == other // 4 else 12.0,
    "bridges of two": lambda one, other: 200.0 if one // 2 == other // 2 else 20.0,
    "a cube": lambda one, other: 48.0 if one // 4 == other // 4 or abs(one - other) == 4 else 10.0,
}
"""GB/s between two devices of a host; in a cube those of two halves reach only their like over a link of their own."""


@pytest.mark.parametrize("links", LINKS)
@pytest.mark.parametrize("hosts", [1, 2, 3])
def test_a_bad_link_between_two_devices_is_found_on_few_hosts_and_what_is_not_judged_is_said(
    hosts: int, links: str
) -> None:
    draw = random.Random(hosts)
    rates = [
        [None if peer == own else LINKS[links](own, peer) * (1 + 0.02 * draw.gauss(0, 1)) for peer in range(DEVICES)]
        for own in [*range(DEVICES)] * hosts
    ]
    record = of_test("peers", [200.0] * hosts * DEVICES, peers_of_ranks=rates)
    assert list(slow_devices(record, LIMIT)) == []
    run = replace(a_run("run1", [1.0]), rounds={"D": [record]})
    told = f"peers of each pair: measured, not judged: 4 hosts alike are compared, there are {hosts}"
    assert unjudged(run, {}) == [told]
    assert Words("zh").reason(told) == f"每对设备的 peers：已测量，未评判：需要 4 个同类主机进行比较，实有 {hosts} 个"
    rates[3][1] = 0.025 * (rates[3][1] or 0.0)
    ((host, said),) = slow_devices(record, LIMIT)
    assert host == "n0" and said.startswith("device 3 to 1: ") and said.endswith(": look at their link")
    assert "below most others of its devices" in said
    but = told.replace("pair:", "pair but 3 to 1 of devices:")
    assert unjudged(run, {}) == [but], "one that is accused is judged"
    assert unjudged(run, usual_of(run, [])) == []
    assert Words("zh").reason(but).startswith("除 3 to 1 外每对设备的 peers：已测量，未评判：")


def test_pairs_of_devices_are_compared_with_those_of_hosts_of_their_kind(tmp_path: Path) -> None:
    """Three hosts with new devices beside four with old ones of half the rate, of which one has a bad link."""
    rates = [200.0] * 3 * DEVICES + [100.0] * 4 * DEVICES
    rows: list[list[float | None]] = [
        [None if peer == rank % DEVICES else rate for peer in range(DEVICES)] for rank, rate in enumerate(rates)
    ]
    kinds = [gpus("H100")] * 3 + [gpus("A100")] * 4
    for bad in ({}, {"n5": ["device 3"]}):
        if bad:
            rows[5 * DEVICES + 3][6] = 25.0
        run = with_kinds(tmp_path / str(len(bad)), of_test("peers", rates, peers_of_ranks=rows), kinds)
        assert {host: [each[:8] for each in said] for host, said in suspects_of(run, LIMIT).items()} == bad


@pytest.mark.parametrize("rows", ["x", [], [None] * 48, [["x"] * 8] * 48, [[1, float("nan")]] * 48, [[[]]] * 48])
def test_a_matrix_that_a_host_makes_up_suspects_nobody(rows: object) -> None:
    assert list(slow_devices(of_test("peers", [5.0] * 48, peers_of_ranks=rows), LIMIT)) == []


def test_of_ranks_that_all_end_with_an_error_the_one_with_wrong_results_is_the_suspect() -> None:
    record = measured(4, 0.005, 1, {}).model_copy(
        update={
            "verdict": Verdict.FAIL,
            "first_failure": FirstFailure(
                host="n3", rank=24, exit_code=1, signal=None, message="SystemExit", log_tail=""
            ),
        }
    )
    record.steps[0]["bad_ranks"] = {"9": "wrong result", "999": "made up", "x": ""}
    run = replace(a_run("run1", [1.0]), rounds={"D": [record]})
    assert suspects_of(run, LIMIT) == {"n1": ["D: device 1: wrong result"]}
    record.steps[0]["bad_ranks"] = {}
    assert list(suspects_of(run, LIMIT)) == ["n3"]


@pytest.mark.parametrize(
    ("places", "disk"),
    [
        ({"disk_models": ["SAMSUNG", "KIOXIA"], "disk_model_of_ranks": [0] * 8 + [1] * 40}, " on KIOXIA"),
        ({"disk_models": ["KIOXIA"]}, " on KIOXIA"),
        ({"disk_models": [""]}, ""),
        ({"disk_models": "made up", "disk_model_of_ranks": ["x"]}, ""),
        ({"disk_models": ["KIOXIA"], "disk_model_of_ranks": [9.5] * 48}, ""),
        ({"disk_models": ["SAMSUNG", "KIOXIA"], "disk_model_of_ranks": [0] * 8}, ""),
        ({"disk_models": ["SAMSUNG", "KIOXIA"], "disk_model_of_ranks": "x"}, ""),
        ({}, ""),
    ],
)
def test_what_is_wrong_of_a_disk_names_its_host_and_the_disk_once_and_no_device(
    places: dict[str, object], disk: str
) -> None:
    record = of_test("disk_read", [3.0] * 6 * DEVICES, **places)
    record.steps[0]["bad_ranks"] = {"8": "wrong result", "9": "wrong result"}
    (said,) = suspects_of(replace(a_run("run1", [1.0]), rounds={"D": [record]}), LIMIT)["n1"]
    assert said.startswith(f"D: disk_read{disk}: wrong result: look at the disk of the results' folder")


@pytest.mark.parametrize(
    ("why", "action"), [("wrong result", ""), ("40 % below the best rank", f": {OF_HOST['host_memory']}")]
)
def test_what_to_do_about_a_slow_test_is_not_said_of_a_wrong_result(why: str, action: str) -> None:
    record = of_test("host_memory", [3.0] * 6 * DEVICES)
    record.steps[0]["bad_ranks"] = {"8": why}
    found = suspects_of(replace(a_run("run1", [1.0]), rounds={"D": [record]}), LIMIT)
    assert found == {"n1": [f"D: host_memory: {why}{action}"]}


def test_a_host_that_sends_no_result_of_its_disk_is_named_without_a_device() -> None:
    record = of_test("disk_write", [3.0] * 6 * DEVICES)
    record.steps[0]["values_of_ranks"][5 * DEVICES :] = ["NaN"] * DEVICES
    (said,) = suspects_of(replace(a_run("run1", [1.0]), rounds={"D": [record]}), LIMIT)["n5"]
    assert said == "disk_write: sent 'NaN', which is no result"


def test_only_what_both_occasions_name_is_confirmed() -> None:
    both, once = agreed({"n1": ["slow"], "n2": ["late"]}, {"n1": ["slow, too"], "n3": ["other"]})
    assert both == {"n1": ["slow", "again: slow, too"]}
    assert once == {"n2": ["late"], "n3": ["other"]}


def named(names: str, key: str = "uuid") -> dict[str, object]:
    """What a host says of its devices, each with one letter for its name."""
    return {"accelerator": {"devices": [{"index": at, key: f"GPU-{name}"} for at, name in enumerate(names)]}}


@pytest.mark.parametrize("key", ["uuid", "pci_bus_id", "pci"])
@pytest.mark.parametrize(
    ("then", "number", "is_met"),
    [
        ("abcdefgh", 3, True),
        ("abcdefgh", 4, False),
        ("bcdefghi", 3, False),
        ("bcdefghi", 2, True),
        ("bcdefgh", 3, True),
    ],
    ids=["same", "another", "number of another", "another number", "not all are there: by name, as of the host"],
)
def test_a_device_is_met_again_by_what_it_keeps_when_another_falls_off_the_bus(
    then: str, number: int, is_met: bool, key: str, tmp_path: Path
) -> None:
    found = []
    for occasion, names, slow in (("1", "abcdefgh", 3), ("2", then, number)):
        record = measured(4, 0.005, 1, {1: ("memory", slow, 0.8)})
        run = with_kinds(tmp_path / occasion, record, [named("abcdefgh"), named(names, key), *2 * [named("abcdefgh")]])
        found.append(suspects_of(run, LIMIT))
    both, once = agreed(*found)
    assert list(both) == (["n1"] if is_met else []) and list(once) == ([] if is_met else ["n1"])
    assert found[0]["n1"][0].endswith("(GPU-d)")
    if not is_met:
        assert once["n1"] == [*found[0]["n1"], *found[1]["n1"]]


def test_one_device_is_met_again_alone_or_in_either_pair_that_it_is_in(tmp_path: Path) -> None:
    """A bad link between two devices is seen from either end; a slow device makes its pairs slow."""
    rows = [[None if peer == rank % DEVICES else 200.0 for peer in range(DEVICES)] for rank in range(4 * DEVICES)]
    found = {}
    for one, other in ((0, 1), (1, 0), (1, 2), (2, 3)):
        slow = [[*row] for row in rows]
        slow[DEVICES + one][other] = 25.0
        record = of_test("peers", [200.0] * 4 * DEVICES, peers_of_ranks=slow)
        run = with_kinds(tmp_path / f"{one}{other}", record, [named("abcdefgh")] * 4)
        found[one, other] = suspects_of(run, LIMIT)
    record = measured(4, 0.005, 1, {1: ("memory", 0, 0.8)})
    alone = suspects_of(with_kinds(tmp_path / "alone", record, [named("abcdefgh")] * 4), LIMIT)
    assert found[0, 1]["n1"][0].endswith("(GPU-a to GPU-b)") and alone["n1"][0].endswith("(GPU-a)")
    assert [*agreed(found[0, 1], found[1, 0])[0]] == [*agreed(alone, found[0, 1])[0]] == ["n1"]
    assert [*agreed(found[0, 1], found[1, 2])[0]] == ["n1"], "both are of device 1"
    assert agreed(found[0, 1], found[2, 3])[0] == agreed(alone, found[1, 2])[0] == {}


def test_an_accelerator_has_the_driver_s_number_though_few_ranks_run_and_no_name_where_two_rounds_differ(
    tmp_path: Path,
) -> None:
    """A case of tools runs one rank on each host."""
    record = of_a_tool([1.0] * 2)
    run = with_kinds(tmp_path, record, [named("abcd"), named("a")])
    own = {f"accelerator {number}": f"GPU-{name}" for number, name in enumerate("abcd")}
    assert identities_of(run, "PAIRS") == {"n0": own, "n1": {"accelerator 0": "GPU-a", "device 0": "GPU-a"}}
    like = DrainEvidence(
        case="PAIRS", rounds=[1], part="device", hosts=["n0"], device="accelerator 3", kind="constant", evidence="",
        action="",
    )  # fmt: skip
    drain = DrainRecord(host="n0", reasons=["accelerator 3: slow"], evidence=[like])
    blamed = replace(run, record=run.record.model_copy(update={"drain": [drain]}))
    assert suspects_of(blamed, LIMIT) == {"n0": ["accelerator 3: slow (GPU-d)"]}
    second = record.model_copy(update={"round": 2})
    for node, told in zip(record.nodes, (named("abce"), named("a")), strict=True):
        folder = tmp_path / "PAIRS/round2" / f"{node.host}_noderank{node.node_rank}"
        folder.mkdir(parents=True)
        (folder / "sys_info.json").write_text(json.dumps(told))
    both = identities_of(replace(run, rounds={"PAIRS": [record, second]}), "PAIRS")
    assert both == {"n0": {}, "n1": {"accelerator 0": "GPU-a", "device 0": "GPU-a"}}


def with_kinds(root: Path, record: RoundRecord, of_hosts: Sequence[object]) -> LoadedRun:
    """A run of that round in a folder, whose hosts say so of themselves."""
    run = replace(a_run("run1", [1.0]), folder=root, rounds={"PAIRS": [record]})
    for node, told in zip(record.nodes, of_hosts, strict=True):
        folder = root / "PAIRS/round1" / f"{node.host}_noderank{node.node_rank}"
        folder.mkdir(parents=True)
        (folder / "sys_info.json").write_text(json.dumps(told))
    return run


def gpus(name: str) -> dict[str, object]:
    return {"cpu": {"model": "a CPU"}, "accelerator": {"devices": [{"name": name}] * DEVICES}}


@pytest.mark.parametrize("seed", samples(4, 40))
def test_old_and_new_devices_are_compared_with_their_own_kind_and_never_accused_for_it(
    seed: int, tmp_path: Path
) -> None:
    """Two of five hosts have devices of half the speed; one device of each kind is slower than its own."""
    old = dict.fromkeys((3, 4), ("memory", None, 0.5))
    kinds = [gpus("H100")] * 3 + [gpus("A100")] * 2
    record = measured(5, 0.005, seed, old)
    assert {host for host, _ in slow_devices(record, LIMIT)} == {"n3", "n4"}, "without kinds"
    run = with_kinds(tmp_path, record, kinds)
    assert suspects_of(run, LIMIT) == {} and unjudged(run, {}) == []
    record.steps[1]["datasheet"] = 3350.0
    assert suspects_of(run, LIMIT) == {}, "the datasheet of the first rank's kind"
    for rank in (1 * DEVICES + 2, 4 * DEVICES + 5):
        record.steps[1]["values_of_ranks"][rank] *= 0.8
    found = suspects_of(run, LIMIT)
    assert {host: said[0].partition(":")[0] for host, said in found.items()} == {"n1": "device 2", "n4": "device 5"}
    both = {kind: levels["memory"].median for kind, levels in usual_of(run, found).items()}
    assert both == pytest.approx({"H100, a CPU": 3000.0, "A100, a CPU": 1500.0}, rel=0.01)
    one = replace(run, rounds={"PAIRS": [measured(5, 0.005, seed, {})]}, folder=tmp_path / "none")
    assert suspects_of(run, LIMIT, usual_of(one, [])).keys() == found.keys(), "figures of another kind do not count"


def test_repaired_hosts_of_two_kinds_are_held_to_what_their_own_kind_measured(tmp_path: Path) -> None:
    """All hosts of either kind are slow now, so that no peer tells; one of a third kind was never measured."""
    kinds = [gpus("H100")] * 2 + [gpus("A100")] * 2
    old = dict.fromkeys((2, 3), ("memory", None, 0.5))
    usual = usual_of(with_kinds(tmp_path / "good", measured(4, 0.005, 1, old), kinds), [])
    run = with_kinds(tmp_path / "again", measured(4, 0.005, 2, old), kinds)
    assert suspects_of(run, LIMIT, usual) == {} and not_against(run, usual) == []
    slow = {0: ("memory", None, 0.8), 1: ("memory", None, 0.8), 2: ("memory", None, 0.4), 3: ("memory", None, 0.4)}
    run = with_kinds(tmp_path / "slow", measured(4, 0.005, 3, slow), kinds)
    assert suspects_of(run, LIMIT, usual).keys() == {"n0", "n1", "n2", "n3"}
    new = with_kinds(tmp_path / "new", measured(4, 0.005, 3, slow), [*kinds[:3], gpus("B200")])
    assert suspects_of(new, LIMIT, usual).keys() == {"n0", "n1", "n2"}
    tests = ", ".join(TESTS)
    assert not_against(new, usual) == [f"{LACKING} {tests} of B200, a CPU"]


def of_data(values: Sequence[float], system: str) -> RoundRecord:
    return of_test("data_read", values, file_system=system)


def test_each_file_system_of_data_has_its_own_level_which_counts_for_no_more_readers() -> None:
    """A case for each folder: the fast disk's level is not that of the file server, whom more hosts slow down."""
    fast, shared = of_data([5.0] * 16, "ext4 /dev/nvme0n1"), of_data([0.5] * 16, "nfs4 filer:/data")
    good = replace(a_run("run1", [1.0]), rounds={"ACCEPT_DATA_1": [shared], "ACCEPT_DATA_2": [fast]})
    usual = usual_of(good, [])
    assert suspects_of(good, LIMIT, usual) == {} and not_against(good, usual) == []
    slow = replace(good, rounds={"ACCEPT_DATA_2": [of_data([0.5] * 16, "ext4 /dev/nvme0n1")]})
    assert suspects_of(slow, LIMIT, usual).keys() == {"n0", "n1"}
    more = replace(good, rounds={"ACCEPT_DATA_1": [of_data([0.25] * 32, "nfs4 filer:/data")]})
    assert suspects_of(more, LIMIT, usual) == {}
    assert not_against(more, usual) == [f"{LACKING} data_read of nfs4 filer:/data"]


def test_readers_of_shared_data_are_all_counted_whatever_their_kind(tmp_path: Path) -> None:
    """Eight readers of one kind alone, then the same beside eight of another kind: each has half."""
    system = "nfs4 filer:/data"
    usual = usual_of(with_kinds(tmp_path / "good", of_data([0.5] * 8, system), [gpus("H100")]), [])
    assert usual["H100, a CPU"][f"data_read of {system}"].devices == 8
    both = with_kinds(tmp_path / "both", of_data([0.25] * 16, system), [gpus("H100"), gpus("A100")])
    assert suspects_of(both, LIMIT, usual) == {} and len(not_against(both, usual)) == 2


def test_too_few_devices_of_a_kind_are_measured_and_said_not_to_be_judged(tmp_path: Path) -> None:
    record = of_test("memory", [100.0] * 2 * DEVICES)
    record.steps[0]["values_of_ranks"] = [100.0] * DEVICES + [1.0, *[None] * (DEVICES - 1)]
    run = with_kinds(tmp_path, record, [gpus("H100"), gpus("A100")])
    said = ["memory: measured, not judged: 4 devices alike are compared, there are 1 of A100, a CPU"]
    assert unjudged(run, {}) == said and suspects_of(run, LIMIT) == {}
    record.steps[0]["datasheet"] = 100.0
    assert unjudged(run, {}) == said, "it is not that of the old one"
    alike = replace(run, folder=tmp_path / "none", rounds={"PAIRS": [of_test("memory", [100.0, *[None] * 7])]})
    assert unjudged(alike, {}) == [said[0].removesuffix(" of A100, a CPU")]
    alike.rounds["PAIRS"][0].steps[0]["datasheet"] = 100.0
    assert unjudged(alike, {}) == []
    one = replace(a_run("run1", [1.0]), rounds={"PAIRS": [of_a_tool([9.0, 1.0])]})
    assert unjudged(one, {}) == ["ib_write_bw mlx5_0: measured, not judged: 4 devices alike are compared, there are 2"]
    assert unjudged(one, {"": {"ib_write_bw mlx5_0": Usual(unit="GB/s", median=9, scatter=0, devices=9)}}) == []


@pytest.mark.parametrize("told", [{}, {"accelerator": {"error": "NVML"}, "cpu": {"model": "a CPU"}}])
def test_a_host_that_does_not_tell_its_devices_is_of_the_others_kind_and_all_are_held_to_accepted_ones(
    told: object, tmp_path: Path
) -> None:
    slow = dict.fromkeys(range(5), ("memory", None, 0.8))
    usual = usual_of(with_kinds(tmp_path / "good", measured(5, 0.005, 1, {}), [*[gpus("H100")] * 4, told]), [])
    assert usual["H100, a CPU"]["memory"].devices == 5 * DEVICES
    run = with_kinds(tmp_path / "slow", measured(5, 0.005, 2, slow), [*[gpus("H100")] * 4, told])
    assert suspects_of(run, LIMIT, usual).keys() == {f"n{number}" for number in range(5)}
    assert unjudged(run, usual) == not_against(run, usual) == []
    mixed = with_kinds(tmp_path / "mixed", measured(5, 0.005, 2, slow), [gpus("H100"), gpus("A100"), *[told] * 3])
    tests = ", ".join(TESTS)
    assert not_against(mixed, usual) == [f"{LACKING} {tests} of {kind}" for kind in ("A100, a CPU", "a CPU")]


def test_a_host_all_of_whose_old_devices_are_slow_is_confirmed_beside_old_ones(tmp_path: Path) -> None:
    """Five hosts with new devices, and after them three with old ones, of which one is slow as a whole."""
    new, tested = {f"n{number}" for number in range(5)}, list[list[str]]()

    def run(name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        tested.append(list(hosts))
        rates = [100.0 if host in new else 40.0 if host == "n6" else 50.0 for host in hosts for _ in range(DEVICES)]
        record = of_test("memory", rates)
        nodes = [node.model_copy(update={"host": host}) for node, host in zip(record.nodes, hosts, strict=True)]
        told = [gpus("H100" if host in new else "A100") for host in hosts]
        return with_kinds(tmp_path / name, record.model_copy(update={"nodes": nodes}), told)

    climb = Climb(
        vendor="nvidia",
        nproc=DEVICES,
        hosts=[f"n{number}" for number in range(8)],
        budget_s=1e6,
        run=run,
        examine=lambda hosts: Looked(),
        gate=lambda hosts: Looked(),
    )
    climb.step(SINGLE)
    assert list(climb.rungs[0].out) == ["n6"] and climb.rungs[0].unsteady == {}
    assert tested[1:] == [["n0", "n5", "n6", "n7"]]
    assert alike_first([*sorted(new), "n5", "n7"], ["n6", "n1"], climb.kinds, 1) == ["n5", "n0"]


def test_hosts_that_miss_the_datasheet_are_no_standard_for_one_that_is_tested_again(tmp_path: Path) -> None:
    """Four hosts have 40 % of the datasheet's speed; one is out for a disk, and tested again beside the others."""

    def climbed(hosts: Sequence[str], usual: Levels) -> Climb:
        def run(name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
            record = measured(len(hosts), 0.005, 1, {})
            record.steps[0]["datasheet"] = 2.5 * TESTS["matmul_bf16"][0]
            nodes = [node.model_copy(update={"host": host}) for node, host in zip(record.nodes, hosts, strict=True)]
            return replace(a_run("run1", [1.0]), rounds={"D": [record.model_copy(update={"nodes": nodes})]})

        looked = Looked(sick={} if usual else {"n3": ["disk: full"]})
        climb = Climb(
            vendor="nvidia", nproc=DEVICES, hosts=list(hosts), budget_s=1e6, run=run,
            examine=lambda hosts: looked, gate=lambda hosts: Looked(), usual=usual,
        )  # fmt: skip
        for rung in (HEALTH, SINGLE):
            climb.step(rung)
        return climb

    first = climbed(["n0", "n1", "n2", "n3"], {})
    assert first.states()["n3"] == "out" and first.rungs[1].verdict == "fail"
    assert first.doubts == first.rungs[1].reasons != []
    assert first.measured[""].keys() == TESTS.keys() - {"matmul_bf16"}
    again = climbed(["n3", "n0", "n1", "n2"], first.measured)
    assert not again.ready and "below 50 % of the datasheet" in reason(again.rungs[1])
    good = {"": {"matmul_bf16": Usual(unit="TFLOPS", median=700.0, scatter=7.0, devices=64)}}
    judged = climbed(["n0", "n1", "n2"], good)
    assert judged.ready and judged.measured[""].keys() == TESTS.keys(), "accepted ones judge instead"


def test_a_datasheet_is_that_of_one_kind_of_hosts_and_most_of_these_miss_it(tmp_path: Path) -> None:
    old = dict.fromkeys((1, 2, 3), ("matmul_bf16", None, 270 / 700))
    record = measured(4, 0.005, 1, old)
    record.steps[0]["datasheet"] = 989.4
    run = with_kinds(tmp_path / "sound", record, [gpus("H100"), *[gpus("A100")] * 3])
    assert against_datasheet(run) == [] and suspects_of(run, LIMIT) == {}
    slow = measured(5, 0.005, 1, dict.fromkeys(range(5), ("matmul_bf16", None, 0.4)))
    slow.steps[0]["datasheet"] = 989.4
    run = with_kinds(tmp_path / "slow", slow, [gpus("H100"), gpus("H100"), *[gpus("A100")] * 3])
    (said,) = against_datasheet(run)
    assert said.startswith("matmul_bf16: 16 of 16 devices are below 50 % of the datasheet's 989.4 TFLOPS: it disagrees")
    assert suspects_of(run, LIMIT) == {} and usual_of(run, [])["H100, a CPU"].keys() == TESTS.keys() - {"matmul_bf16"}
    run = with_kinds(tmp_path / "alone", slow, [gpus("H100"), *[gpus("A100")] * 4])
    assert against_datasheet(run) == [] and suspects_of(run, LIMIT).keys() == {"n0"}, "one host is held to it"


@pytest.mark.parametrize("junk", [[], {"accelerator": 3, "cpu": []}, {"accelerator": {"devices": [7, {"name": []}]}}])
def test_what_a_host_makes_up_of_its_kind_is_no_kind(junk: object, tmp_path: Path) -> None:
    run = with_kinds(tmp_path, measured(2, 0.005, 1, {}), [junk, junk])
    assert kinds_of(run, "PAIRS") == {"n0": "", "n1": ""} and suspects_of(run, LIMIT) == {}
