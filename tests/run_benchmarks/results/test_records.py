"""round.json and run.json: whole or not there, readable again, without secrets."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from protocol.masking import mask_environment
from run_benchmarks.results.loading import LoadError, load_run
from run_benchmarks.results.records import (
    SCHEMA_VERSION,
    JobRecord,
    RoundRecord,
    RunRecord,
    Verdict,
    worst,
    write_record,
    write_text,
)
from run_benchmarks.results.summary import case_rows, show
from tests.run_benchmarks.results.rounds import round_record, run_record


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    first = {"host": "n", "rank": None, "exit_code": None, "signal": "SIGKILL", "message": "m", "log_tail": "ü\n"}
    record = round_record(tmp_path, verdict="fail", first_failure=first, warnings=["w"])
    write_record(tmp_path / "round.json", record)
    assert RoundRecord.model_validate_json((tmp_path / "round.json").read_text()) == record
    run = run_record({"busbw_GBps": 1.5, "correct": "pass"})
    write_record(tmp_path / "run.json", run)
    assert RunRecord.model_validate_json((tmp_path / "run.json").read_text()) == run
    assert json.loads((tmp_path / "run.json").read_text())["schema_version"] == SCHEMA_VERSION


def test_a_record_of_another_shape_is_refused(tmp_path: Path) -> None:
    fields = json.loads(round_record(tmp_path).model_dump_json())
    with pytest.raises(ValidationError, match="surprise"):
        RoundRecord.model_validate({**fields, "surprise": 1})
    with pytest.raises(ValidationError, match="verdict"):
        RoundRecord.model_validate({**fields, "verdict": "maybe"})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("started_ms", 10**20, "less than"),
        ("finished_ms", -1, "greater than"),
        *(("folder", folder, "leads out of the run") for folder in ("..", "", "/etc", "a/b", "a\0b")),
    ],
)
def test_a_run_of_anybody_has_times_of_a_calendar_and_cases_inside_of_it(
    key: str, value: object, said: str, tmp_path: Path
) -> None:
    fields = json.loads(run_record({}).model_dump_json())
    (fields["cases"][0] if key == "folder" else fields)[key] = value
    (tmp_path / "run.json").write_text(json.dumps(fields))
    with pytest.raises(LoadError, match=said):
        load_run(tmp_path)


@pytest.mark.parametrize("seconds", [float("inf"), float("nan"), 1e308, -1.0])
def test_a_wait_in_a_queue_is_a_number_of_seconds(seconds: float) -> None:
    """A page adds the waits of several runs up, and writes them as hours."""
    assert JobRecord(id="1", hosts="n1", queue_seconds=60.0).queue_seconds == 60.0
    with pytest.raises(ValidationError, match="queue_seconds"):
        JobRecord(id="1", hosts="n1", queue_seconds=seconds)


def test_the_schema_describes_every_field() -> None:
    schema = RunRecord.model_json_schema()
    assert schema["additionalProperties"] is False
    # Records of before there were these stay readable.
    later = {"schema_version", "left_out", "git_changes", "changes", "images", "fail_on", "drain", "jobs"}
    assert set(schema["required"]) == set(RunRecord.model_fields) - later


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "round.json"
    write_text(file, "old\n")
    assert file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(UnicodeEncodeError):
        write_text(file, "\ud800")

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        write_text(file, "new\n")
    assert file.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["round.json"]


@pytest.mark.parametrize(
    "name",
    [
        "HF_TOKEN",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "WANDB_API_KEY",
        "APIKEY",
        "DB_PASSWORD",
        "PASSWD",
        "my_credentials",
        "SSH_PRIVATE_KEY",
        "AUTHORIZATION",
    ],
)
def test_values_of_telling_names_are_masked(name: str) -> None:
    assert mask_environment({name: "value"}) == {name: "***"}


def test_passwords_in_urls_are_masked_and_the_rest_is_told() -> None:
    given = {
        "HTTPS_PROXY": "http://user:s3cret@proxy:3128",
        "TWO": "https://a:b@x/y https://c:d@z",
        "NCCL_DEBUG": "WARN",
        "URL": "http://proxy:3128/a@b",
        "CUDA_VISIBLE_DEVICES": "0,1",
    }
    expected = given | {"HTTPS_PROXY": "http://user:***@proxy:3128", "TWO": "https://a:***@x/y https://c:***@z"}
    assert mask_environment(given) == expected


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], Verdict.PASS),
        ([Verdict.PASS, Verdict.SKIPPED], Verdict.SKIPPED),
        ([Verdict.FAIL, Verdict.SKIPPED, Verdict.PASS], Verdict.FAIL),
        ([Verdict.TIMEOUT, Verdict.FAIL], Verdict.TIMEOUT),
        ([Verdict.ABORTED, Verdict.TIMEOUT], Verdict.ABORTED),
    ],
)
def test_the_worst_verdict_counts(verdicts: list[Verdict], expected: Verdict) -> None:
    assert worst(verdicts) is expected


def test_rows_of_the_table() -> None:
    metrics = {"busbw_GBps": 1.23456, "correct": "pass"}
    assert case_rows(run_record(metrics, rounds=["pass", "fail"], verdict="fail")) == [
        ("ONE", "fail", "1/2", "1 x 2", "busbw_GBps", "1.235"),
        ("", "", "", "", "correct", "pass"),
    ]
    assert case_rows(run_record({}, reason="why not")) == [("ONE", "pass", "1/1", "1 x 2", "", "why not")]


def test_numbers_for_people() -> None:
    assert [show(value) for value in (0.000123456, 12.3456, 7, "Infinity", None)] == [
        "0.0001235",
        "12.35",
        "7",
        "Infinity",
        "None",
    ]
