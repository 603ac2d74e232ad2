"""The tools of others in an acceptance: those that a host has run in its rungs, and those that none has are said."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_benchmarks.acceptance.rungs import NETWORK, SINGLE, stages_of
from run_benchmarks.acceptance.tools import installed, tools_of
from run_benchmarks.hosts.local import LocalHost
from training.benchmarks.tools.table import TOOLS


def test_a_vendors_configs_name_the_tools_of_its_rungs() -> None:
    assert {"dcgmi", "nvbandwidth", "ib_write_bw_loopback"} <= set(tools_of("nvidia", "config_host"))
    assert tools_of("ascend", "config_host") == ["ascend-dmi"]
    assert tools_of("cpu", "config_pairs") == ["ib_write_bw", "ib_write_lat"]
    assert tools_of("metax", "config_host") == []
    named = {tool for vendor in ("nvidia", "amd", "ascend") for tool in tools_of(vendor, "config_host")}
    assert {tool for tool in TOOLS if TOOLS[tool].scope != "pairs"} - named == {"hl_qual"}, "no vendor of its devices"


def test_only_tools_that_a_host_has_are_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ib_write_bw").write_text("#!/bin/sh\n")
    (tmp_path / "ib_write_bw").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    hosts = {"n0": LocalHost("n0"), "n1": LocalHost("n1")}
    there, missing = installed(hosts, ["dcgmi", "ib_write_bw_loopback", "ib_write_lat_loopback"])
    assert there == ["ib_write_bw_loopback"]
    assert missing == ["dcgmi is not installed on any host", "ib_write_lat is not installed on any host"]


@pytest.mark.parametrize(("rung", "config"), [(SINGLE, "config_host"), (NETWORK, "config_pairs")])
def test_tools_are_a_rungs_last_stage_with_one_process_a_host(rung: str, config: str) -> None:
    without = stages_of(rung, "nvidia", ["n0", "n1"], 8)
    *same, last = stages_of(rung, "nvidia", ["n0", "n1"], 8, tools=["dcgmi"])
    assert same == without
    case = last["ACCEPT_TOOLS"]
    assert (case["model"], case["config"], case["nproc"], case["nnodes"]) == ("tools", config, 1, 2)
    assert case["overrides"] == {"tools": ["dcgmi"], "max_percent_behind": 7.0}
