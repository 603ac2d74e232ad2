"""The time of an acceptance: from earlier ones, scaled to the hosts, and what the page says of it afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from run_benchmarks.acceptance.estimate import Estimate, about, earlier_ones, estimates, in_words
from run_benchmarks.acceptance.page import write_page
from run_benchmarks.acceptance.records import RungRecord
from run_benchmarks.acceptance.rungs import NETWORK, RUNGS, SINGLE, Others
from run_benchmarks.acceptance.tools import others_of
from run_benchmarks.results.records import record_text
from tests.run_benchmarks.acceptance.test_accept_record import sample
from training.benchmarks.tools.pytorch.config import Config


def taken(rung: str, seconds: float, hosts: int = 8, **more: object) -> RungRecord:
    record = RungRecord(rung=rung, verdict="pass", hosts=[f"n{n}" for n in range(hosts)], seconds=seconds)
    return record.model_copy(update=more)


def test_the_newest_acceptance_in_which_a_rung_passed_tells_its_time(tmp_path: Path) -> None:
    unsteady = {"n1": ["slow"]}
    runs = {
        "accept20261101000000": [taken("single", 100), taken("whole", 900, soak_seconds=600.0)],
        "accept20261102000000": [
            taken("single", 200),
            taken("network", 500, again_seconds=200.0),
            taken("whole", 50, verdict="fail"),
        ],
        "accept20261103000000": [taken("single", 999, unsteady=unsteady)],
        "accept20261103000001": [taken("single", 40, shrunk=["ACCEPT_DEVICES: without disk_write"])],
    }
    for name, rungs in runs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "accept.json").write_text(record_text(sample(accept_id=name, rungs=rungs)))
    (tmp_path / "accept20261104000000").mkdir()
    (tmp_path / "accept20261104000000/accept.json").write_text("{")
    earlier = earlier_ones(tmp_path)
    found = estimates(RUNGS, "nvidia", 8, 8, earlier)
    assert {rung: (each.seconds, each.source) for rung, each in found.items() if rung != "health"} == {
        "single": (200, "accept20261102000000"),
        "network": (pytest.approx(300), "accept20261102000000"),
        "whole": (300, "accept20261101000000"),
    }
    assert found["health"].source == "estimate"
    assert {each.source for each in estimates(RUNGS, "nvidia", 8, 4, earlier).values()} == {"estimate"}
    more = estimates(RUNGS, "nvidia", 16, 8, earlier)
    assert more["single"].seconds == 200 and 300 < more["network"].seconds < 2 * 300 * 15 / 7


def test_the_time_of_tools_of_others_counts_as_measured_or_as_documented(tmp_path: Path) -> None:
    config = Config(tools=["dcgmi"], arguments={"dcgmi": "diag -r 3 -j"})
    tools = {SINGLE: others_of(config, 8)}
    without, plain = (estimates(RUNGS, "nvidia", 8, 8, (), each) for each in ({}, tools))
    assert plain[SINGLE].seconds - without[SINGLE].seconds == plain[SINGLE].tools_seconds > 900
    assert plain[NETWORK] == without[NETWORK]
    assert " of it tools of others)" in in_words(plain, 8, 3600)
    watched = {NETWORK: Others(inspector="/tmp/inspector")}
    assert estimates(RUNGS, "nvidia", 8, 8, (), watched)[NETWORK].tools_seconds > 300, "the collectives again"
    for calls, none in ((Others(inspector="/tmp/i").calls, Others()), ([], watched[NETWORK])):
        ran = [sample(rungs=[taken(NETWORK, 900, tools=calls, tools_seconds=400.0 if calls else 0.0)])]
        changed = estimates(RUNGS, "nvidia", 8, 8, ran, {NETWORK: none})[NETWORK]
        assert changed.tools_seconds == (0.0 if calls else 315.0), "Inspector is off now, or on now"
        same = estimates(RUNGS, "nvidia", 8, 8, ran, {NETWORK: Others(inspector="/tmp/i" if calls else None)})[NETWORK]
        assert (same.seconds, same.tools_seconds) == (900, 400 if calls else 0)
    then = taken(SINGLE, 1000, tools=["dcgmi diag -r 3 -j"], tools_seconds=700.0)
    earlier = [sample(rungs=[then])]
    same = estimates(RUNGS, "nvidia", 8, 8, earlier, tools)[SINGLE]
    assert (same.seconds, same.tools_seconds, same.source) == (1000, 700, "accept1")
    quick = {SINGLE: others_of(Config(tools=["dcgmi"]), 8)}
    other = estimates(RUNGS, "nvidia", 8, 8, earlier, quick)[SINGLE]
    assert other.seconds == 300 + other.tools_seconds and 120 < other.tools_seconds < 200
    assert estimates(RUNGS, "nvidia", 8, 8, earlier)[SINGLE].seconds == 300, "hosts that have no longer any"


def test_a_rung_for_which_there_are_too_few_hosts_takes_no_time() -> None:
    assert estimates(RUNGS, "cpu", 1, 1, ()).keys() == {"health", "single", "whole"}


def test_thousands_of_hosts_take_little_longer_than_hundreds() -> None:
    few, many = (estimates(RUNGS, "nvidia", hosts, 8, ())["network"].seconds for hosts in (512, 4096))
    assert few < many < 1.3 * few


def test_the_budget_is_compared_before_anything_runs() -> None:
    found = {"single": Estimate(seconds=100, source="estimate"), "whole": Estimate(seconds=500, source="accept1")}
    said = in_words(found, 64, 1800)
    assert said == "About 10 min on 64 hosts: single 100 s (estimate), whole 8 min (accept1)"
    assert in_words(found, 64, 300).endswith("; the budget of 5 min may not suffice: rungs are shrunk")
    alone = {"health": Estimate(seconds=40, source="estimate")}
    assert in_words(alone, 64, 30).endswith("; the budget of 30 s may not suffice"), "health has no shorter form"
    assert about(119.6) == "120 s" and about(120) == "2 min"


def test_the_page_sets_the_time_taken_beside_the_estimate(tmp_path: Path) -> None:
    rung = taken("whole", 1020, estimated_seconds=300.0, estimated_from="accept1", soak_seconds=700.0)
    write_page(tmp_path / "accept.html", sample(rungs=[rung]))
    text = (tmp_path / "accept.html").read_text()
    assert "<td>17 min, 12 min of it a soak</td><td>5 min (accept1): it took 1.1 times as long</td>" in text
