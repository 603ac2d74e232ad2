"""The tools of others in an acceptance: those that a host has run in its rungs, and those that none has are said."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import vendors
from protocol.outcome import MeasuredCase, MeasuredRound
from run_benchmarks.acceptance.devices import untested_devices, usual_devices
from run_benchmarks.acceptance.page import left_out_of
from run_benchmarks.acceptance.rungs import HEALTH, NETWORK, SINGLE, Others, stages_of
from run_benchmarks.acceptance.suspects import not_run_in, without_result
from run_benchmarks.acceptance.tools import installed, others_of, too_long, tools_of
from run_benchmarks.console.language import ENGLISH, Words
from run_benchmarks.errors import HostError
from run_benchmarks.hosts.base import Completed
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.results.loading import LoadedRun
from tests.run_benchmarks.reports import a_report
from tests.run_benchmarks.results.network_rounds import a_round
from tests.run_benchmarks.results.recorded_runs import a_run
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.pytorch.outcome import OUTCOME
from training.benchmarks.tools.table import TOOLS


def named(vendor: str, config: str) -> list[str]:
    found = tools_of(vendor, config)
    return found.tools if found else []


def test_a_vendors_configs_name_the_tools_of_its_rungs() -> None:
    assert {"dcgmi", "nvbandwidth", "ib_write_bw_loopback"} <= set(named("nvidia", "config_host"))
    loopbacks = ["ib_write_bw_loopback", "ib_write_lat_loopback"]
    for vendor in vendors.available():
        assert named(vendor, "config_pairs") == ["ib_write_bw", "ib_write_lat", "ib_write_bw_ring"]
        assert named(vendor, "config_host")[-2:] == loopbacks
    assert named("cpu", "config_quick") == [] and named("metax", "config_host") == loopbacks
    every = {tool for vendor in vendors.available() for tool in named(vendor, "config_host")}
    assert {tool for tool in TOOLS if TOOLS[tool].scope not in ("pairs", "ring")} == every
    quick = {vendor: named(vendor, "config_quick") for vendor in ("nvidia", "amd", "ascend", "gaudi")}
    assert quick == {"nvidia": ["dcgmi"], "amd": ["rvs"], "ascend": ["ascend-dmi"], "gaudi": ["hl_qual"]}


def test_a_diagnosis_runs_in_one_rung_that_of_health_if_it_takes_a_small_share_of_the_budget() -> None:
    def found(vendor: str, budget_s: float, *there: str) -> tuple[Others, Others]:
        quick, host = (tools_of(vendor, config) for config in ("config_quick", "config_host"))
        assert quick is not None and host is not None
        health = others_of(quick, 8, there, too_long(quick, 8, budget_s))
        return health, others_of(host, 8, there, dict.fromkeys(health.commands, ""))

    health, single = found("nvidia", 600.0, "dcgmi")
    assert (health.commands, health.seconds) == (["dcgmi diag -r 1 -j"], 10.0)
    assert (single.commands, single.seconds) == (["dcgmi diag -r 2 -j"], 120.0), "a longer level"
    health, single = found("amd", 6000.0, "rvs")
    assert (health.names, single.names) == (["rvs"], [])
    health, single = found("amd", 5999.0, "rvs")
    assert (health.names, single.names) == ([], ["rvs"])
    assert health.missing == ["rvs takes 600 s, more than 10% of the budget"]
    assert found("amd", 1.0)[0].missing == ["rvs is not installed on any host"]
    assert "ascend-dmi" not in found("ascend", 3600.0, "ascend-dmi")[1].names


def test_what_a_config_says_of_tools_that_no_host_has_is_left_out_before_anything_runs() -> None:
    config = Config(
        tools=["dcgmi", "ib_write_bw_loopback"],
        devices=["mlx5_0", "mlx5_1"],
        arguments={"dcgmi": "diag -r 3 -j", "ib_write_bw_loopback": "-n 10"},
    )
    for there in (None, {"dcgmi"}, {"ib_write_bw"}, set[str]()):
        found = others_of(config, 8, there)
        kept = {"tools": list(found.names), "inspector_folder": "/tmp/inspector"}
        Config.model_validate({**config.model_dump(include={"devices", "arguments"}), **kept, **found.settings})
        said = "RDMA devices mlx5_0, mlx5_1: no tool for them is installed on any host"
        assert (said in found.missing) == (there is not None and "ib_write_bw" not in there)
    assert others_of(config, 8).settings == {} and others_of(config, 8).missing == []
    (case,) = stages_of(SINGLE, "nvidia", ["n0"], 8, tools=others_of(config, 8, {"dcgmi"}))[1].values()
    assert case["overrides"]["devices"] is None
    assert case["overrides"]["arguments"] == {"dcgmi": "diag -r 3 -j"}


@pytest.mark.parametrize(
    ("tool", "words", "seconds"),
    [
        ("dcgmi", None, 120),
        ("dcgmi", "diag -r 1 -j", 10),
        ("dcgmi", "diag -j --run=long", 900),
        ("dcgmi", "diag -r4 -j", 7200),
        ("dcgmi", "diag -r memory,pcie -j", 900),
        ("ascend-dmi", None, 120),
        ("ascend-dmi", "--dg --se healthCheck,performanceCheck", 120 + 3 * 3600),
        ("hl_qual", None, 240),
        ("hl_qual", "-gaudi2 -t 60", 60),
    ],
)  # fmt: skip
def test_a_tool_takes_the_time_that_is_documented_of_its_level(tool: str, words: str | None, seconds: float) -> None:
    config = Config(tools=[tool], timeout_s=1e5, arguments={} if words is None else {tool: words})
    assert others_of(config, 8).seconds == seconds
    assert TOOLS[tool].most_seconds(config.words_of(tool)) >= 2 * seconds, "it is not ended before its end"


def test_perftest_is_called_for_each_device_with_each_neighbour() -> None:
    assert others_of(Config(tools=["ib_write_bw_loopback"]), 8).seconds == 8 * 5
    assert others_of(Config(tools=["ib_write_bw"], devices=["mlx5_0"]), 8).seconds == 3 * 5
    assert others_of(Config(tools=["ib_write_bw_ring"]), 8).seconds == 20, "all devices at once"


def test_a_wait_that_is_shorter_than_a_tool_takes_is_refused() -> None:
    config = Config(tools=["dcgmi", "nvbandwidth"], arguments={"dcgmi": "diag -r 4 -j"})
    said = "timeout_s = 3600 is less than tools usually take: dcgmi 7200 s"
    assert config.refusal(nnodes=2, nproc=1) == said
    assert config.refusal(nnodes=1, nproc=1) is None, "one host waits for nobody"


class Reached(LocalHost):
    """A host that answers once it is connected to, as over ssh, and that cannot be reached if it is `dark`."""

    is_open = False

    def connect(self) -> None:
        if self.name == "dark":
            raise HostError(self.name, "no route")
        self.is_open = True

    def run(self, *args: Any, **more: Any) -> Completed:
        if not self.is_open:
            raise HostError(self.name, "not connected")
        return super().run(*args, **more)


def test_only_tools_that_a_host_has_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ib_write_bw").write_text("#!/bin/sh\n")
    (tmp_path / "ib_write_bw").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    hosts = {name: Reached(name) for name in ("n0", "n1")}
    names = ["dcgmi", "ib_write_bw_loopback", "ib_write_lat_loopback"]
    there, silent = installed(hosts, names)
    assert (there, silent) == ({"ib_write_bw"}, [])
    found = others_of(Config(tools=names), 1, there)
    assert found.names == ["ib_write_bw_loopback"]
    assert found.missing == ["dcgmi is not installed on any host", "ib_write_lat is not installed on any host"]
    dark = {"dark": Reached("dark")}
    assert installed({**hosts, **dark}, names) == ({"ib_write_bw"}, ["tools of others: dark: no route"])
    assert installed(dark, ["dcgmi"]) == (None, ["tools of others: dark: no route"]), "what it has is not known"


@pytest.mark.parametrize(
    ("rung", "config"), [(HEALTH, "config_quick"), (SINGLE, "config_host"), (NETWORK, "config_pairs")]
)
def test_tools_are_a_rungs_last_stage_with_one_process_a_host(rung: str, config: str) -> None:
    without = stages_of(rung, "nvidia", ["n0", "n1"], 8)
    *same, last = stages_of(rung, "nvidia", ["n0", "n1"], 8, tools=Others(names=["dcgmi"]))
    assert same == without
    case = last["ACCEPT_TOOLS"]
    assert (case["model"], case["config"], case["nproc"], case["nnodes"]) == ("tools", config, 1, 2)
    assert case["overrides"] == {"tools": ["dcgmi"], "max_percent_behind": 7.0}


def test_the_files_of_inspector_are_read_after_the_collectives_of_all_hosts() -> None:
    *_, last = stages_of(NETWORK, "nvidia", ["n0", "n1"], 8, tools=Others(inspector="/tmp/inspector"))
    overrides = last["ACCEPT_TOOLS"]["overrides"]
    assert overrides == {
        "tools": [],
        "max_percent_behind": 7.0,
        "inspector_folder": "/tmp/inspector",
        "inspector_max_age_s": 600.0,
    }
    assert [*last] == ["ACCEPT_ALL_REDUCE", "ACCEPT_TOOLS"]


def of_a_tool(not_run: object) -> LoadedRun:
    """A run of dcgmi on three hosts."""
    node = a_round([]).nodes[0]
    nodes = [node.model_copy(update={"host": f"n{rank}", "node_rank": rank, "ranks": [rank]}) for rank in range(3)]
    record = a_round([{"tool": "dcgmi", "not_run": not_run}]).model_copy(update={"nodes": nodes})
    return replace(a_run("run1", [1.0]), rounds={"ACCEPT_TOOLS": [record]})


def test_a_tool_that_is_there_and_gives_no_result_fails_the_rung_and_one_that_is_missing_does_not() -> None:
    garbage = {"why": "printed no result: ???", "is_missing": False}
    missing = {"why": "dcgmi is not installed", "is_missing": True}
    everywhere = dict.fromkeys("012", garbage)
    assert without_result(of_a_tool(everywhere)) == ["dcgmi gave no result on 3 of 3 hosts"]
    assert without_result(of_a_tool({"0": garbage, "1": missing})) == ["dcgmi gave no result on 1 of 3 hosts"]
    assert without_result(of_a_tool(dict.fromkeys("012", missing))) == []
    assert without_result(of_a_tool({"1": garbage})) == [], "that host is taken out"
    alone, bond = {"mlx5_9": "no other host has a device of this name"}, {"mlx5_bond_0": "exit code 1"}
    run = of_a_tool(None)
    (step,) = run.rounds["ACCEPT_TOOLS"][0].steps
    step["silent"] = {"0": bond | alone, "1": bond, "2": bond, "9": bond}
    assert without_result(run) == ["dcgmi mlx5_bond_0 gave no result on 3 of 3 hosts"]
    step["figures"] = [{"test": "dcgmi mlx5_bond_0", "values_of_ranks": [None, 1.0, None]}]
    assert without_result(run) == [], "one host has a figure of it"
    for made_up in (3, "x", [bond], {"0": "x", "1": [3]}, {"x": bond}):
        step["silent"], step["figures"] = made_up, made_up
        assert without_result(run) == []
    for junk in (None, "x", [garbage], {"7": garbage}, {"0": "x", "1": 3}, {"x": garbage}, {"0": {"is_missing": 0}}):
        assert without_result(of_a_tool(junk)) == []


def test_a_test_that_all_hosts_skip_or_warn_about_is_told_and_fails_no_rung() -> None:
    """As DCGM's EUD, which most hosts have not installed."""
    results = [
        {"name": name, "results": [{"gpu_id": str(gpu), "status": status} for gpu in range(2)]}
        for name, status in (("PCIe", "Pass"), ("EUD Test", "Skip"), ("Memory", "Warn"))
    ]
    text = json.dumps({"tests": results})
    answer = asdict(TOOLS["dcgmi"].read(text))
    run = of_a_tool(None)
    (record,) = run.rounds["ACCEPT_TOOLS"]
    (step,) = record.steps
    step.update({key: dict.fromkeys("012", answer[key]) for key in ("failed", "silent", "told")})
    assert without_result(run) == []
    measured = MeasuredRound(number=1, metrics={}, steps=[step], hosts={0: "n0", 1: "n1", 2: "n2"})
    findings = OUTCOME.findings(MeasuredCase(name="t", config={}, nnodes=3, nproc=1), measured)
    assert {(each.kind, each.severity, each.drained_hosts) for each in findings} == {("not_run", "warning", ())}
    record.findings[:] = findings
    skipped, warned = (left_out_of(said, ENGLISH) for said in not_run_in(run))
    assert skipped == "not run: dcgmi EUD Test: skipped: GPU 0; GPU 1 on n0, n1, n2"
    assert warned == "dcgmi Memory: warn: measured, not judged: GPU 0; GPU 1 on n0, n1, n2"


def test_a_host_has_as_many_ranks_as_most_hosts_have_devices(tmp_path: Path) -> None:
    """Not two: of one GPU, health would ask for another. Who lost a device is told, and decides nothing."""
    answers = {"n0": 8, "n1": 8, "n2": 7}

    class OfDevices(Reached):
        def run(self, *args: Any, **more: Any) -> Completed:
            (argv,) = args
            return super().run([*argv[:-1], f"{tmp_path / self.name}/nvidia[0-9]*"], **more)

    hosts = {name: OfDevices(name) for name in answers}
    for name, count in answers.items():
        (tmp_path / name).mkdir()
        for each in (*range(count), "ctl"):
            (tmp_path / name / f"nvidia{each}").touch()
    assert usual_devices(hosts, ["/dev/nvidia[0-9]*"]) == 8
    assert usual_devices({"n2": hosts["n2"]}, ["/dev/nvidia[0-9]*"]) == 7
    assert usual_devices({"none": OfDevices("none")}, ["/dev/nvidia[0-9]*"]) is None
    for name in ("n0", "n1"):
        for each in range(4, 8):
            (tmp_path / name / f"nvidia{each}").unlink()
    assert usual_devices(hosts, ["/dev/nvidia[0-9]*"]) == 4


def test_devices_for_which_there_is_no_rank_are_told() -> None:
    untested = "n2: 3 of its 7 devices are not tested"
    reports = {name: a_report(name, devices=("/dev/x",) * count) for name, count in (("n1", 4), ("n2", 7))}
    assert untested_devices(reports | {"dark": HostReport(host="dark")}, 4) == [untested]
    assert Words("zh").reason(untested) == "n2：7 个设备中有 3 个未被测试"
