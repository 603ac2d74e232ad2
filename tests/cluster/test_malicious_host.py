"""A host that sends what breaks readers: its rounds have their verdict, the next case passes, the terminal is safe."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.results.records import RoundRecord, RunRecord
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller
from tests.cluster.faulty.hostile import CLIPBOARD
from tests.cluster.faulty_project import LIGHT, project

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
FAULTS = {"HOSTILE": "hostile", "ODD": "odd", "ADDS": "adds"}


@pytest.fixture(scope="module")
def answer(testbed: TestBed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answer]:
    """A run of four cases: one that sends anything, one that sends what is strange, one that adds code, a sound one."""
    folder = tmp_path_factory.mktemp("malicious")
    controller = Controller(folder, testbed, project(folder / "project", {}))
    cases: dict[str, dict[str, object]] = {
        name: {**LIGHT, "nproc": 1, "overrides": {"fault": fault, "rank": 0, "steps": 50}}
        for name, fault in FAULTS.items()
    }
    controller.configure_test({**cases, "SOUND": LIGHT}, MAX_COLLECT_BYTES="128M", **PROCESS)
    try:
        yield controller.call()
        assert controller.containers() == []
    finally:
        controller.end()


def strict(path: Path) -> dict[str, Any]:
    """The JSON of a record, which has no NaN."""
    return dict(json.loads(path.read_bytes(), parse_constant=lambda name: pytest.fail(f"{path}: {name} is no JSON")))


@pytest.mark.nightly
def test_each_case_has_its_verdict_and_the_run_goes_on(answer: Answer) -> None:
    assert answer.folder is not None
    assert "Traceback" not in answer.output, answer.output[-3000:]
    record = RunRecord.model_validate(strict(answer.folder / "run.json"))
    assert {case.name: case.verdict.value for case in record.cases} == {
        "HOSTILE": "fail",
        "ODD": "pass",
        "ADDS": "fail",
        "SOUND": "pass",
    }
    assert answer.exit_code == 1 and (answer.folder / "report.html").is_file()


def test_what_was_sent_is_told(answer: Answer, testbed: TestBed) -> None:
    assert answer.folder is not None
    hostile = RoundRecord.model_validate(strict(answer.folder / "HOSTILE/round1/round.json"))
    assert "sparse" in " ".join([hostile.reason, *hostile.warnings, *hostile.nodes[0].missing])
    odd = RoundRecord.model_validate(strict(answer.folder / "ODD/round1/round.json"))
    for name in ("latest", "pipe"):
        assert any(name in warning and testbed.hosts[0].address in warning for warning in odd.warnings), odd.warnings
    assert odd.nodes[0].monitor is not None and odd.nodes[0].missing == []


def test_code_that_came_during_a_round_fails_it_and_is_gone_after_it(answer: Answer) -> None:
    assert answer.folder is not None
    adds, sound = (
        RoundRecord.model_validate(strict(answer.folder / f"{case}/round1/round.json")) for case in ("ADDS", "SOUND")
    )
    assert "its code was changed during the round: added: statistics.py" in adds.reason
    assert {node.code_digest for node in adds.nodes} == {None, adds.code_digest}
    assert {node.code_digest for node in sound.nodes} == {sound.code_digest}


def test_nothing_of_it_left_its_folder_or_reached_the_terminal(answer: Answer) -> None:
    assert answer.folder is not None
    assert CLIPBOARD not in answer.output and "\x1b]52" not in answer.output
    for name in ("run.log", "report.html", "run.json"):
        assert "\x1b" not in (answer.folder / name).read_text(encoding="utf-8"), name
    assert not [path for path in answer.folder.rglob("*") if path.is_symlink() or path.is_fifo()]
