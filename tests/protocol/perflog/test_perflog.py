import io
import json
import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from protocol.perflog import (
    PREFIX,
    Event,
    Metadata,
    PerfLogError,
    PerfLogger,
    PerfLogRecord,
    SubmitInfo,
    check_sequence,
    format_record,
    parse_line,
    write_line,
)

FLAGPERF = Path(__file__).parents[2] / "data" / "flagperf"

SUBMITTED: dict[str, JsonValue] = {
    "schema_version": 1,
    "vendor": "cpu",
    "model": "network",
    "framework": "pytorch",
    "case": None,
    "config": {},
    "world_size": 2,
    "nnodes": 1,
    "torch": "2.13.0",
    "backend": "gloo",
}


def record(event: Event, time_ms: int = 1, value: JsonValue = None, rank: int = 0) -> PerfLogRecord:
    return PerfLogRecord(event=event, value=value, metadata=Metadata(file="f.py", lineno=1, time_ms=time_ms, rank=rank))


def good_log() -> list[PerfLogRecord]:
    events = [
        Event.SUBMIT_INFO,
        Event.LAUNCH_TRAINING,
        Event.INIT_START,
        Event.INIT_EVALUATION,
        Event.INIT_END,
        Event.TRAIN_START,
        Event.EPOCH_BEGIN,
        Event.STEP_BEGIN,
        Event.STEP_END,
        Event.EVALUATE,
        Event.EPOCH_END,
        Event.TRAIN_END,
        Event.FINISHED,
    ]
    log = [record(event, time_ms) for time_ms, event in enumerate(events)]
    log[0] = record(Event.SUBMIT_INFO, 0, SUBMITTED)
    return log


def without(event: Event) -> list[PerfLogRecord]:
    return [each for each in good_log() if each.event is not event]


def test_a_written_line_is_read_back_with_the_place_of_the_call() -> None:
    stream = io.StringIO()
    PerfLogger(3, stream).log(Event.STEP_END, {"loss": 1.5, "sizes": (1, 2)})
    line = stream.getvalue()
    assert line.startswith(PREFIX)
    assert line.count("\n") == 1 and line.endswith("\n")
    read = parse_line(line)
    assert read is not None
    assert read.event is Event.STEP_END
    assert read.value == {"loss": 1.5, "sizes": [1, 2]}
    assert read.metadata.rank == 3
    assert read.metadata.file == __file__
    source = Path(__file__).read_text(encoding="utf-8").splitlines()
    assert "PerfLogger(3, stream)" in source[read.metadata.lineno - 1]


def test_numbers_that_json_lacks_are_written_as_strings_that_float_reads() -> None:
    stream = io.StringIO()
    PerfLogger(0, stream).log(Event.STEP_END, {"a": float("nan"), "b": [float("inf"), float("-inf")]})
    text = stream.getvalue().removeprefix(PREFIX)
    strict = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert strict["value"] == {"a": "NaN", "b": ["Infinity", "-Infinity"]}
    assert float(strict["value"]["b"][1]) == float("-inf")


def test_foreign_lines_with_bare_nan_are_read() -> None:
    metadata = '{"file": "f", "lineno": 1, "time_ms": 5, "rank": 0}'
    read = parse_line(f'{PREFIX}{{"event": "STEP_END", "value": {{"loss": NaN}}, "metadata": {metadata}}}')
    assert read is not None and read.value == {"loss": "NaN"}
    assert parse_line(format_record(read)) == read


@pytest.mark.parametrize("value", [{1: 2}, {"a": {"b": object()}}, {"p": Path("x")}, [{1, 2}]])
def test_a_value_that_is_no_json_is_refused_and_nothing_is_written(value: object) -> None:
    stream = io.StringIO()
    with pytest.raises(PerfLogError, match="value of STEP_END"):
        PerfLogger(0, stream).log(Event.STEP_END, value)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("line", ["", "loss 3.2", "a [PerfLog] b", "[PerfLog]", " PerfLog {"])
def test_ordinary_output_is_no_record(line: str) -> None:
    assert parse_line(line) is None


def test_text_before_the_prefix_on_the_line_is_no_obstacle() -> None:
    line = "Epoch 1:  50%|#####     | 1/2" + format_record(record(Event.EVALUATE))
    assert parse_line(line) == record(Event.EVALUATE)


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ('{"event": "STEP_EN', "not a PerfLog record"),
        ("not json", "not a PerfLog record"),
        ('{"event": "STEP", "metadata": {"file": "f", "lineno": 1, "time_ms": 5, "rank": 0}}', "event: .*SUBMIT_INFO"),
        ('{"event": "FINISHED"}', "metadata: Field required"),
        ('{"event": "FINISHED", "metadata": {"file": "f", "lineno": 1, "time_ms": 5, "rank": -1}}', "metadata.rank"),
        ("[1, 2]", "not a PerfLog record"),
    ],
)
def test_a_broken_line_names_what_is_wrong(rest: str, expected: str) -> None:
    with pytest.raises(PerfLogError, match=expected):
        parse_line(PREFIX + rest)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(json_values)
def test_any_json_value_survives_the_line(value: JsonValue) -> None:
    line = format_record(record(Event.EVALUATE, value=value))
    assert "\n" not in line and "\r" not in line
    assert parse_line(line) == record(Event.EVALUATE, value=value)


def test_lines_of_many_threads_never_mix(tmp_path: Path) -> None:
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    padding = "x" * 20_000  # longer than any stdio buffer
    with os.fdopen(descriptor, "w") as stream:
        logger = PerfLogger(0, stream)

        def write() -> None:
            for _ in range(20):
                logger.log(Event.STEP_END, padding)

        threads = [threading.Thread(target=write) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    lines = path.read_text().splitlines()
    assert len(lines) == 80
    stamps = [found.metadata.time_ms for line in lines if (found := parse_line(line)) is not None]
    assert len(stamps) == 80 and stamps == sorted(stamps), "lines of threads pass each other"


def test_a_clock_that_is_set_back_breaks_no_rule_of_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a correction of 1 ms, for one: the round would be lost."""
    clock = iter([5_000, 4_999, 4_000, 5_000, 5_002, 5_003])
    monkeypatch.setattr(time, "time_ns", lambda: next(clock) * 1_000_000)
    stream = io.StringIO()
    logger = PerfLogger(0, stream)
    events = (Event.LAUNCH_TRAINING, Event.INIT_START, Event.INIT_END, Event.TRAIN_START, Event.TRAIN_END)
    for event in events:
        logger.log(event)
    logger.log(Event.FINISHED, {})
    records = [found for line in stream.getvalue().splitlines() if (found := parse_line(line)) is not None]
    assert [each.metadata.time_ms for each in records] == [5_000, 5_000, 5_000, 5_000, 5_002, 5_003]
    assert not [broken for broken in check_sequence(records) if "earlier" in broken]


def test_submit_info_names_a_missing_field() -> None:
    assert SubmitInfo.model_validate(SUBMITTED).world_size == 2
    with pytest.raises(ValueError, match="backend"):
        SubmitInfo.model_validate({key: value for key, value in SUBMITTED.items() if key != "backend"})


def test_a_good_log_breaks_no_rule() -> None:
    assert check_sequence(good_log()) == []


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([], "no PerfLog records"),
        (without(Event.SUBMIT_INFO), "SUBMIT_INFO must stand exactly once, found 0"),
        ([good_log()[0], *good_log()], "SUBMIT_INFO must stand exactly once, found 2"),
        ([good_log()[2], good_log()[0], *good_log()[3:]], "SUBMIT_INFO must be the first record, found INIT_START"),
        ([record(Event.SUBMIT_INFO), *good_log()[1:]], "must carry schema_version 1, found None"),
        (without(Event.FINISHED), "FINISHED must stand exactly once, found 0"),
        ([*good_log(), good_log()[-1]], "FINISHED must stand exactly once, found 2"),
        ([*good_log(), record(Event.LAUNCH_TRAINING, 99)], "FINISHED must be the last record"),
        (without(Event.TRAIN_END), "TRAIN_END must stand exactly once, found 0"),
        (without(Event.STEP_BEGIN), "STEP_END has no STEP_BEGIN before it"),
        (without(Event.STEP_END), "the last STEP_BEGIN has no STEP_END"),
        (without(Event.EPOCH_END), "the last EPOCH_BEGIN has no EPOCH_END"),
        ([*good_log()[:8], good_log()[7], *good_log()[8:]], "STEP_BEGIN follows a STEP_BEGIN that has no STEP_END"),
        (
            [*good_log()[:5], good_log()[7], good_log()[8], *good_log()[5:]],
            "must stand between TRAIN_START and TRAIN_END",
        ),
        (
            [*good_log()[:6], good_log()[7], good_log()[8], *good_log()[6:]],
            "must stand between EPOCH_BEGIN and EPOCH_END",
        ),
        ([*good_log()[:1], *good_log()[2:5], good_log()[1], *good_log()[5:]], "LAUNCH_TRAINING must come before"),
        ([*good_log()[:2], good_log()[4], good_log()[2], *good_log()[5:]], "INIT_START must come before INIT_END"),
        ([*good_log()[:-1], record(Event.FINISHED, 3)], "FINISHED is 8 ms earlier than TRAIN_END"),
        ([*good_log()[:-1], record(Event.FINISHED, 99, rank=1)], "one log must hold one rank, found 0, 1"),
    ],
)
def test_a_broken_rule_is_named(log: list[PerfLogRecord], expected: str) -> None:
    assert any(expected in rule for rule in check_sequence(log)), check_sequence(log)


@pytest.mark.parametrize("name", ["bert.rank0.out.log", "glm.rank1.out.log"])
def test_logs_of_real_flagperf_are_read(name: str) -> None:
    lines = (FLAGPERF / name).read_text(encoding="utf-8").splitlines()
    records = [each for each in map(parse_line, lines) if each is not None]
    assert len(records) == sum(line.startswith(PREFIX) for line in lines) > 15
    assert check_sequence(records, strict=False) == []
    broken = check_sequence(records)
    assert "SUBMIT_INFO must stand exactly once, found 0" in broken
    assert all(parse_line(format_record(each)) == each for each in records)


def test_what_flagperf_keeps_beside_the_value_is_not_lost() -> None:
    lines = (FLAGPERF / "bert.rank0.out.log").read_text(encoding="utf-8").splitlines()
    records = [each for each in map(parse_line, lines) if each is not None]
    assert [each.step for each in records if each.event is Event.STEP_BEGIN][:3] == [1, 100, 200]
    assert next(each for each in records if each.event is Event.INIT_END).other == "Finish initialization"
    finished = records[-1]
    assert finished.event is Event.FINISHED and isinstance(finished.value, dict)
    assert finished.value["converged"] is True


def test_a_submit_info_without_value_passes_only_when_lenient() -> None:
    log = [record(Event.SUBMIT_INFO, 0), *good_log()[1:]]
    assert check_sequence(log, strict=False) == []
    assert check_sequence(without(Event.FINISHED), strict=False) == []
    assert check_sequence(without(Event.TRAIN_END), strict=False) != []


def test_a_line_is_written_whole_where_the_system_takes_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: real(descriptor, data[:7]))
    with (tmp_path / "log").open("w", encoding="utf-8") as stream:
        write_line(stream, "zwölf Boxkämpfer jagen Viktor\n")
    assert (tmp_path / "log").read_text(encoding="utf-8") == "zwölf Boxkämpfer jagen Viktor\n"
