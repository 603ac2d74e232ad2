"""The record and the page of an acceptance: what is on them, in which order, and nothing that a host makes run."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

import vendors
from run_benchmarks.acceptance.climb import GOOD_BESIDE
from run_benchmarks.acceptance.page import verdict_of, warned_rows, write_page
from run_benchmarks.acceptance.records import AcceptRecord, CaseLevels, RungRecord, Usual, WarningRecord
from run_benchmarks.acceptance.rungs import RUNGS
from run_benchmarks.acceptance.warned import NOBODY
from run_benchmarks.commands.accept_options import recorded, refuse_unlike
from run_benchmarks.commands.accepting import _record, show
from run_benchmarks.console.language import Words
from run_benchmarks.errors import InputProblems
from run_benchmarks.results.records import record_text

EVIL = "<script>alert(1)</script>"


def sample(**changes: object) -> AcceptRecord:
    """Two of four hosts accepted, one out, one that comes and goes."""
    rungs = [
        RungRecord(rung="health", verdict="pass", hosts=["n0", "n1", "n2", "n3"], seconds=2.0),
        RungRecord(
            rung="single",
            verdict="fail",
            hosts=["n0", "n1", "n2", "n3"],
            runs=["run1", "run2"],
            out={"n1": [f"device 3: memory {EVIL}", "again: device 3"]},
            unsteady={"n2": ["device 0: matmul"]},
        ),
    ]
    record = AcceptRecord(
        accept_id="accept1",
        ready=False,
        vendor="nvidia",
        started_ms=0,
        finished_ms=90_000,
        rungs=rungs,
        hosts={"n0": "accepted", "n1": "out", "n2": "comes and goes", "n3": "accepted"},
        drain=dict(rungs[1].out),
        commands=["scontrol update nodename=n1 state=drain reason=x", "kubectl cordon n1"],
        again={"n1": "run.py accept --hosts n1,n0,n3 --nproc 8"},
        bundles=["run.py bundle run1 ACCEPT_DEVICES"],
        nproc=8,
        usual={"H100": {"memory": Usual(unit="GB/s", median=3000.0, scatter=30.0, devices=16)}},
        warnings=[WarningRecord(kind="clock: is not synchronised", count=7, hosts={"n3": [f"clock: {EVIL}"]})],
    )
    return record.model_copy(update=changes)


def test_a_warning_of_no_host_has_no_name_and_counts_none() -> None:
    warnings = [WarningRecord(kind="rack #", count=0, hosts={NOBODY: ["seen once: rack 7: slow"]}), *sample().warnings]
    rows = warned_rows(sample(warnings=warnings), Words())
    assert [row[:2] for row in rows] == [("0", ""), ("7", "n3, and 6 more")]
    assert rows[0][2] == "seen once: rack 7: slow"


def test_the_page_begins_with_what_to_take_out_and_how_to_test_it_again(tmp_path: Path) -> None:
    write_page(tmp_path / "accept.html", sample())
    text = (tmp_path / "accept.html").read_text()
    order = [
        "Not ready: 2 of 4 hosts accepted", "Take out of service", "device 3: memory", "--hosts n1,n0,n3 --nproc 8",
        "scontrol update nodename=n1", "kubectl cordon n1", "run.py bundle run1 ACCEPT_DEVICES",
        "Suspected, not confirmed", "Warnings, which take nobody out", "n3, and 6 more", "<h2>Rungs</h2>",
        "run1, run2", "Accepted devices", "3000 GB/s",
    ]  # fmt: skip
    places = [text.index(each) for each in order]
    assert places == sorted(places)
    assert EVIL not in text and "&lt;script&gt;" in text


def test_the_page_is_in_chinese_where_that_is_asked_for_but_for_what_came_from_hosts(tmp_path: Path) -> None:
    said = ["again: device 3: memory 1200 GB/s, 20 % below its peers' median"]
    write_page(tmp_path / "accept.html", sample(drain={"n1": said}), Words("zh"))
    text = (tmp_path / "accept.html").read_text()
    assert '<html lang="zh">' in text and "<h1>尚不能投入使用: 4 台主机中 2 台通过验收</h1>" in text
    assert "复测：设备 3：memory 1200 GB/s，比同类中位数低 20 %" in text
    body = re.sub(r"<pre>.*?</pre>", "", text[text.index("<h1>") :], flags=re.DOTALL)
    cells = re.findall(r"<(?:th|h1|h2|summary|p)[^>]*>([^<]*)", body)
    english = [cell for cell in cells if not re.search("[\u4e00-\u9fff]", cell)]
    assert english == ["accept1, nvidia, 2 min"], "what has no Chinese"


def test_each_finding_has_a_line_of_its_own_the_gravest_first_and_many_are_folded(tmp_path: Path) -> None:
    rung = RungRecord(
        rung="network",
        verdict="fail",
        reasons=["pair n1-n2: 60 % slow; look there", EVIL],
        hosts=["n1"],
        not_run=["rvs is not installed on any host", "n2: suspected, left in doubt: late", "mlx5_0 of n1: idle"],
        shrunk=["ACCEPT_ALL_TO_ALL: not run"],
    )
    write_page(tmp_path / "accept.html", sample(rungs=[rung], drain={"n1": ["slow", "again: slow"]}))
    text = (tmp_path / "accept.html").read_text()
    shown, folded = re.findall(r"<ul>(.*?)</ul>", text)[1:]
    assert shown == (
        "<li>pair n1-n2: 60 % slow; look there</li><li>&lt;script&gt;alert(1)&lt;/script&gt;</li>"
        "<li>n2: suspected, left in doubt: late</li>"
    )
    assert re.findall("<li>(.*?)</li>", folded) == [
        "shrunk to fit the budget: ACCEPT_ALL_TO_ALL: not run", "not run: rvs is not installed on any host",
        "not run: mlx5_0 of n1: idle",
    ]  # fmt: skip
    assert "</ul><details><summary>and 3 more</summary><ul>" in text
    assert "<td><ul><li>slow</li><li>again: slow</li></ul></td>" in text, "of a host, too"
    assert AcceptRecord.model_validate_json(record_text(sample(rungs=[rung]))).rungs[0].reasons == rung.reasons


@pytest.mark.parametrize(
    ("vendor", "seen"),
    [("cpu", None), ("gaudi", "")] + [(name, vendors.load(name).seen) for name in ("nvidia", "amd", "ascend")],
)
def test_a_vendor_on_whose_devices_nothing_has_run_is_said_once_on_page_and_terminal_and_in_the_record(
    vendor: str, seen: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    climb: Any = SimpleNamespace(
        rungs=[], kinds={}, nproc=8, measured={}, measured_cases={}, missed={},
        ready=False, vendor=vendor, proofs=[], left=[], states=dict,
        warned=SimpleNamespace(records=list, left_out=0),
    )  # fmt: skip
    record = _record(climb, tmp_path, [], 0.0, None)
    assert json.loads(record_text(record))["vendor_seen"] == seen
    write_page(tmp_path / "accept.html", record)
    show(record, tmp_path)
    said = f"This program has run on no device of {vendor} yet"
    for text in ((tmp_path / "accept.html").read_text(), capsys.readouterr().out):
        assert text.count(said) == (1 if seen == "" else 0)


@pytest.mark.parametrize(
    ("names", "shrunk", "english", "chinese"),
    [
        (RUNGS, False, "Ready", "可以投入使用"),
        (RUNGS, True, "Ready, with shortened rungs", "可以投入使用（部分测试已缩短）"),
        (["health"], False, "Ready by 1 of 4 rungs", "可以投入使用（共 4 级，仅测 1 级）"),
        (
            ["single", "whole"],
            True,
            "Ready by 2 of 4 rungs, shortened",
            "可以投入使用（共 4 级，仅测 2 级，部分测试已缩短）",
        ),
    ],
)
def test_a_verdict_says_of_how_many_rungs_it_is_in_both_languages(
    names: Sequence[str],
    shrunk: bool,
    english: str,
    chinese: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    less = ["ACCEPT_DEVICES: without disk_read"] if shrunk else []
    rungs = [RungRecord(rung=name, verdict="pass", hosts=["n0"], shrunk=less) for name in names]
    record = sample(ready=True, rungs=rungs, hosts={"n0": "accepted"}, drain={}, again={})
    assert verdict_of(record, Words()) == f"{english}: 1 of 1 host accepted"
    assert verdict_of(record, Words("zh")) == f"{chinese}: 1 台主机中 1 台通过验收"
    write_page(tmp_path / "accept.html", record)
    show(record, tmp_path)
    assert f"<h1>{english}: 1 of 1 host accepted</h1>" in (tmp_path / "accept.html").read_text()
    assert f"accept1: {english.upper()}: 1 of 1 host accepted" in capsys.readouterr().out
    lacking = record.model_copy(update={"ready": False, "rungs": [rungs[0].model_copy(update={"verdict": "not run"})]})
    assert verdict_of(lacking, Words()).startswith("Not ready, as not every rung was run: ")
    assert verdict_of(lacking, Words("zh")).startswith("尚不能投入使用（并非各级都已运行）: ")


def test_a_page_without_a_bad_host_says_so(tmp_path: Path) -> None:
    write_page(tmp_path / "accept.html", sample(ready=True, drain={}, commands=[], again={}))
    text = (tmp_path / "accept.html").read_text()
    assert "<h1>Ready" in text and "<p>No host.</p>" in text


def test_the_record_comes_back_as_it_was_and_its_schema_allows_nothing_else() -> None:
    text = record_text(sample())
    assert AcceptRecord.model_validate_json(text) == sample()
    schema = AcceptRecord.model_json_schema()
    assert schema["additionalProperties"] is False and set(schema["required"]) <= json.loads(text).keys()
    for key, value in (("hosts", {"n0": "fine"}), ("more", 1), ("usual", {"H100": {"memory": {"unit": "GB/s"}}})):
        with pytest.raises(ValidationError):
            AcceptRecord.model_validate(json.loads(text) | {key: value})


def test_another_record_than_one_of_the_same_devices_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "accept.json"
    file.write_text(record_text(sample()))
    assert recorded(file).usual == sample().usual
    for vendor, nproc in (("cpu", 8), ("nvidia", 4)):
        with pytest.raises(InputProblems, match=f"of {vendor} with --nproc {nproc}; this one is of nvidia, --nproc 8"):
            refuse_unlike(sample(), file, vendor, nproc)
    for name, content in (("none.json", None), ("other.json", "{}"), ("broken.json", "{")):
        if content is not None:
            (tmp_path / name).write_text(content)
        with pytest.raises(InputProblems, match=r"the accept\.json of an acceptance"):
            recorded(tmp_path / name)


def test_a_host_is_tested_again_beside_good_hosts_of_its_own_kind(tmp_path: Path) -> None:
    kinds = {f"n{number}": "H100" if number % 2 else "A100" for number in range(8)}
    rung = RungRecord(rung="single", verdict="fail", hosts=[*kinds], out={"n3": ["slow"]})
    climb: Any = SimpleNamespace(
        rungs=[rung], kinds=kinds, nproc=8, measured={}, measured_cases={}, missed={},
        ready=False, vendor="cpu", proofs=[],
        left=[host for host in kinds if host != "n3"], states=lambda: dict.fromkeys(kinds, "accepted"),
        warned=SimpleNamespace(records=list, left_out=0),
    )  # fmt: skip
    (command,) = _record(climb, tmp_path, ["--budget", "1h"], 0.0, None).again.values()
    beside = command.split("--hosts ")[1].split()[0].split(",")
    assert beside[0] == "n3" and {kinds[host] for host in beside} == {"H100"} and len(beside) == 1 + GOOD_BESIDE
    (on_slurm,) = _record(climb, tmp_path, ["--budget", "1h"], 0.0, None, is_slurm=True).again.values()
    assert on_slurm == f"scontrol update nodename=n3 state=resume; {command}", "it is drained, and tested in no job"
    climb.kinds, climb.states = {}, lambda: dict.fromkeys(kinds, "accepted") | {"n0": "not tested"}
    (command,) = _record(climb, tmp_path, [], 0.0, None).again.values()
    assert command.split("--hosts ")[1].split()[0] == "n3,n1,n2,n4", "hosts in doubt are the last to compare with"


@pytest.mark.parametrize("measured", ["measured", "measured_cases", ""])
def test_a_host_is_tested_again_against_what_its_peers_measured_by_any_rung_or_what_was_recorded_before(
    tmp_path: Path, measured: str
) -> None:
    """A rung of the network alone measures cases, and no device test."""
    level = Usual(unit="GB/s", median=40.0, scatter=0.4, devices=1)
    case = CaseLevels(hosts=2, ranks=8, settings="", kinds="H100", figures={"busbw of 64M": level})
    levels: dict[str, Any] = {"measured": {"": {"matmul": level}}, "measured_cases": {"ACCEPT_PAIRS": case}}
    climb: Any = SimpleNamespace(
        rungs=[RungRecord(rung="network", verdict="fail", hosts=["n0", "n1"], out={"n1": ["slow"]})],
        kinds={}, nproc=8, missed={}, ready=False, vendor="cpu", proofs=[], left=["n0"],
        states=lambda: {"n0": "accepted", "n1": "out"}, warned=SimpleNamespace(records=list, left_out=0),
        **{name: levels[name] if name == measured else {} for name in levels},
    )  # fmt: skip
    own, earlier = tmp_path / "accept.json", tmp_path / "earlier.json"
    (command,) = _record(climb, tmp_path, ["--rungs", "network"], 0.0, earlier).again.values()
    assert command.endswith(f"--rungs network --against {own if measured else earlier}")
    (alone,) = _record(climb, tmp_path, [], 0.0, None).again.values()
    assert ("--against" in alone) == bool(measured)


def test_the_page_has_the_levels_of_network_and_training(tmp_path: Path) -> None:
    level = Usual(unit="GB/s", median=40.0, scatter=0.4, devices=1)
    case = CaseLevels(hosts=16, ranks=8, settings="", kinds="H100", figures={"busbw of 64M": level})
    write_page(tmp_path / "page", sample(cases={"ACCEPT_ALL_REDUCE": case}), Words("zh"))
    page = (tmp_path / "page").read_text()
    row = "<td>ACCEPT_ALL_REDUCE busbw of 64M</td><td>40 GB/s</td><td>1 %</td><td>16</td>"
    assert "<h2>已验收的网络与训练</h2>" in page and row in page


def test_an_accepted_host_of_which_a_check_did_not_run_is_said_to_be_so_on_page_and_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missed = {"n0": ["clock synchronisation", "names"], "n3": ["clock synchronisation", "names"], "n1": ["names"]}
    record = sample(missed=missed)
    assert verdict_of(record, Words()) == "Not ready: 2 of 4 hosts accepted"
    for words, said in (
        (Words(), "accepted, but not looked at: clock synchronisation, names"),
        (Words("zh"), "已验收，但未检查：时钟同步, 名称解析"),
    ):
        write_page(tmp_path / "page", record, words)
        page = (tmp_path / "page").read_text()
        assert f"<p>n0, n3: {said}</p>" in page and f"<td>n3</td><td>{said}</td>" in page
    show(record, tmp_path)
    printed = capsys.readouterr().out
    assert (
        "n0, n3: accepted, but not looked at: clock synchronisation, names\n" in printed
        and "n1: accepted" not in printed
    )
    write_page(tmp_path / "page", sample(), Words())
    assert "not looked at" not in (tmp_path / "page").read_text()
