"""The templates give the bytes that SimAI's generator gave, and refuse what they have to."""

import hashlib
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from simulation import cli
from simulation.common.dialect import DIALECTS, SIMAI

DATA = Path(__file__).resolve().parents[2] / "data" / "simulation" / "topo"
RECORDED: list[dict[str, Any]] = json.loads((DATA / "recorded.json").read_text(encoding="utf-8"))
REFUSED: list[dict[str, Any]] = json.loads((DATA / "refused.json").read_text(encoding="utf-8"))


# The original has no NVL; what it makes of the name is its dialect alone.
CASES = [
    pytest.param(case, dialect, id=f"{case['name']}-{dialect}")
    for case in RECORDED
    for dialect in DIALECTS
    if dialect == SIMAI or "NVL" not in case["args"]
]


@pytest.mark.parametrize(("case", "dialect"), CASES)
def test_content_and_name_are_those_of_the_original(
    case: dict[str, Any], dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["topology", *shlex.split(case["args"]), "--dialect", dialect]) == 0
    assert [path.name for path in tmp_path.iterdir()] == [case["file"]]
    content = (tmp_path / case["file"]).read_bytes()
    kept = DATA / f"{case['name']}.topo"
    if kept.exists():
        assert content.decode() == kept.read_text(encoding="utf-8")
    assert content.split(b"\n", 1)[0].decode() == case["header"]
    assert content.count(b"\n") == case["lines"]
    assert hashlib.sha256(content).hexdigest() == case["sha256"]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case["name"])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_bad_input_is_one_message_and_no_file(
    case: dict[str, Any],
    dialect: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["topology", *shlex.split(case["args"]), "--dialect", dialect]) == 2
    assert not [*tmp_path.iterdir()]
    captured = capsys.readouterr()
    errors = [line for line in captured.err.splitlines() if not line.startswith("warning: ")]
    assert len(errors) == 1 and errors[0].startswith("error: ") and not captured.out
    assert any(word in errors[0] for word in ("must be", "give", "unrecognized arguments: -")), errors


def test_every_recorded_case_is_there() -> None:
    assert (len(RECORDED), len(REFUSED)) == (38, 21)
