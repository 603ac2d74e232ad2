"""The cases of each rung, what a shrunk rung leaves out, and the test_conf.py that runs them."""

from __future__ import annotations

import pytest

from run_benchmarks.acceptance.rungs import (
    NETWORK,
    SINGLE,
    WHOLE,
    Others,
    conf_text,
    left_out,
    shortened,
    stages_of,
)
from tests.run_benchmarks.acceptance.scripted_cluster import HOSTS


@pytest.mark.parametrize("rung", [SINGLE, NETWORK, WHOLE])
@pytest.mark.parametrize("vendor", ["cpu", "nvidia"])
@pytest.mark.parametrize("hosts", [4, 40])
def test_whatever_a_shrunk_rung_leaves_out_is_said(rung: str, vendor: str, hosts: int) -> None:
    names, data = [f"n{number}" for number in range(hosts)], [("/data", "/data")]
    full = stages_of(rung, vendor, names, 8, data, Others(names=["dcgmi"]))
    short = shortened(rung, full)
    said = left_out(full, short)
    cases = {name: each for stage in short for name, each in stage.items()}
    for name, each in ((name, each) for stage in full for name, each in stage.items()):
        words = [word for word in said if word.startswith(f"{name}: ")]
        assert (name in cases and cases[name] == each) == (not words), name
        assert name in cases or words == [f"{name}: not run"]
    assert said and left_out(full, full) == []


@pytest.mark.parametrize("vendor", ["cpu", "nvidia"])
def test_the_cases_are_those_of_a_test_conf_and_the_users_own_settings_stay(vendor: str) -> None:
    cases = stages_of("network", vendor, HOSTS, 8)[1]
    names: dict[str, object] = {}
    exec(conf_text('VENDOR = "x"\nCASES = ["MINE"]\nMINE = {}', cases, 60), names)
    assert (names["VENDOR"], names["CASES"], names["RUN_TIME_LIMIT"]) == ("x", list(cases), 60)
    assert names["ACCEPT_ALL_REDUCE"] == cases["ACCEPT_ALL_REDUCE"]


def test_many_hosts_are_searched_and_few_are_measured_pair_by_pair() -> None:
    few, many = (stages_of("network", "nvidia", [f"n{n}" for n in range(count)], 8)[0] for count in (16, 17))
    assert few["ACCEPT_PAIRS"]["config"] == "config_pairs"
    assert many["ACCEPT_PAIRS"]["config"] == "config_adaptive"
