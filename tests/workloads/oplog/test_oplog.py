"""Holds the op log's file to its promises: what is recorded is read again, small, and no file can do harm."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workloads.library import CommGroup, CommType, LogItem, Workload
from workloads.oplog.facts import LogFacts
from workloads.oplog.file import LogFileError, file_name, read, read_folder, workload_digest
from workloads.oplog.recorder import OpRecorder
from workloads.rows.ops import EPOCH_END

WORKLOAD = Workload(
    [
        LogItem(CommType.barrier, CommGroup.dp_group, 4),
        EPOCH_END,
        LogItem(CommType.all_reduce, CommGroup.dp_group, 4, 4096, "step", dtype="bfloat16", overlap=1),
        LogItem(CommType.all_gather, CommGroup.tp_group, 2, 25952256.0, "forward"),
        EPOCH_END,
    ]
)
FACTS = LogFacts(
    rank=1, world_size=4, mode="stream", stage=0, backend="gloo", frame="Megatron", scale="1/64",
    clock_offset_ns=-7, clock_error_ns=900, groups={"dp_group": [0, 1, 2, 3], "tp_group": [0, 1]},
)  # fmt: skip


def recorded() -> OpRecorder:
    log = OpRecorder(5)
    log.record(0, 0, 100, 300)
    log.record(1, 0, 100, 310)
    first = log.issued(2, 1, 400)
    second = log.issued(3, 1, 410)
    log.finished(second, 500, 90)
    log.finished(first, 900, 15)
    log.issued(2, 2, 1000)  # never finished
    return log


def test_what_is_recorded_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / file_name(1)
    size = recorded().save(path, FACTS, WORKLOAD)
    log = read(path)
    assert size == path.stat().st_size
    assert log.facts == LogFacts(**{**_fields(FACTS), "workload_sha256": workload_digest(WORKLOAD)})
    assert list(log.workload) == list(WORKLOAD)
    assert log.op.tolist() == [0, 1, 2, 3]
    assert log.iteration.tolist() == [0, 0, 1, 1]
    assert log.issue_ns.tolist() == [100, 100, 400, 410]
    assert log.done_ns.tolist() == [300, 310, 900, 500]
    assert log.exposed_ns.tolist() == [200, 210, 15, 90]
    assert log.on_rank_0(log.issue_ns).tolist() == [93, 93, 393, 403]
    assert [log.rows()[op].stage for op in log.op] == ["", "", "step", "forward"]


def test_what_a_late_rank_waited_for_a_cpu_is_read_again(tmp_path: Path) -> None:
    plain = recorded()
    without = plain.save(tmp_path / "a.npz", FACTS, WORKLOAD)
    plain.queued_ns = {1: 7, 4: 9, 5: 11}  # of a finished operation, of one that is not, of none
    assert plain.save(tmp_path / "b.npz", FACTS, WORKLOAD) > without
    kept = [read(tmp_path / name).queued_ns for name in ("a.npz", "b.npz")]
    assert [None if each is None else each.tolist() for each in kept] == [[0, 0, 0, 0], [0, 7, 0, 0]]
    plain.queued_ns = {1: -7}
    with pytest.raises(ValueError, match="queued_ns goes from -7 to 0"):
        plain.log(FACTS, WORKLOAD)


def _fields(facts: LogFacts) -> dict[str, Any]:
    return {name: getattr(facts, name) for name in LogFacts.__dataclass_fields__}


def test_an_empty_log_is_a_log(tmp_path: Path) -> None:
    OpRecorder(0).save(tmp_path / "a.npz", FACTS, Workload([]))
    assert len(read(tmp_path / "a.npz")) == 0
    assert read(tmp_path / "a.npz").rows() == []


def test_an_operation_is_under_twenty_bytes_on_disk(tmp_path: Path) -> None:
    count, noise = 50_000, np.random.default_rng(3)
    times = np.cumsum(noise.integers(20_000, 40_000_000, 2 * count)) + 1_000_000_000_000_000
    log = OpRecorder(count)
    for number in range(count):
        log.record(2 + number % 3, 1 + number // 3, int(times[2 * number]), int(times[2 * number + 1]))
    assert log.save(tmp_path / "a.npz", FACTS, WORKLOAD) < 20 * count


def test_no_room_is_an_error_and_not_a_lost_operation() -> None:
    log = OpRecorder(1)
    log.record(0, 0, 1, 2)
    with pytest.raises(IndexError):
        log.record(1, 0, 1, 2)
    with pytest.raises(IndexError):
        log.issued(1, 0, 1)
    assert len(log.log(FACTS, WORKLOAD)) == 1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rank": 4}, "rank is 4 of world_size 4"),
        ({"mode": "fast"}, "mode is 'fast', not one of each, stream, replay"),
        ({"scale": "1/0"}, "scale is '1/0'"),
        ({"groups": {"tp_group": [0]}}, "tp_group is [0]"),
        ({"groups": {"team": [0]}}, "groups is"),
        ({"backend": "gloo\n"}, "backend is"),
    ],
)
def test_wrong_facts_are_not_written(tmp_path: Path, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named.replace("[", r"\[")):
        recorded().save(tmp_path / "a.npz", LogFacts(**{**_fields(FACTS), **changes}), WORKLOAD)
    assert not list(tmp_path.iterdir())


def test_records_outside_the_workload_are_not_written(tmp_path: Path) -> None:
    log = OpRecorder(1)
    log.record(5, 0, 100, 200)
    with pytest.raises(ValueError, match="op goes from 5 to 5; allowed: 0 to 4"):
        log.save(tmp_path / "a.npz", FACTS, WORKLOAD)


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def array(values: Any, kind: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(values, kind), allow_pickle=True)
    return buffer.getvalue()


def facts_with(**changes: Any) -> bytes:
    changed = {"format": "clusterdyno-oplog-1", **_fields(FACTS), **changes}
    return array(list(json.dumps(changed).encode()), np.uint8)


HUGE = array([0], np.int32).replace(b"(1,), }", b"(99999999999999,), }")
HOSTILE: dict[str, tuple[dict[str, bytes | None], str]] = {
    "a column is missing": ({"op.npy": None}, "op.npy"),
    "objects": ({"op.npy": array([{}], object)}, "op is object"),
    "declared larger than memory": ({"op.npy": HUGE}, "99999999999999"),
    "shorter than declared": ({"op.npy": array([1, 2], np.int32)[:-3]}, "ends after 5 bytes"),
    "two axes": ({"op.npy": array([[1]], np.int32)}, "of shape (1, 1)"),
    "other lengths": ({"op.npy": array([1], np.int32)}, "different lengths"),
    "sums beyond 64 bits": ({"issue_ns.npy": array([1 << 61] * 4, np.int64)}, "numbers beyond"),
    "done before issue": ({"done_ns.npy": array([1, -1, 0, 0], np.int64)}, "done_ns is before issue_ns"),
    "no facts": ({"facts.npy": array([91, 93], np.uint8)}, "do not say format"),
    "facts of deep lists": ({"facts.npy": array([91] * 200_000, np.uint8)}, "no op log"),
    "an unknown fact": ({"facts.npy": facts_with(more=1)}, "expected names: more"),
    "a fact of another type": ({"facts.npy": facts_with(rank=[1])}, "rank is [1], not 0 or more"),
    "a rank that is a float": ({"facts.npy": facts_with(rank=float("nan"))}, "rank is nan"),
    "no workload": ({"workload.npy": array([65], np.uint8)}, "has not the header"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rank1.oplog.npz"
    recorded().save(path, FACTS, WORKLOAD)
    changed, text = HOSTILE[name]
    kept = {key: value for key, value in {**members(path), **changed}.items() if value is not None}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for key, value in kept.items():
            archive.writestr(key, value)
    with pytest.raises(LogFileError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert text in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04garbage", b"comm_type,comm_group\n"])
def test_what_is_no_archive_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(LogFileError, match=r"x\.npz: is no op log"):
        read(path)


def test_a_file_cut_anywhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    recorded().save(path, FACTS, WORKLOAD)
    whole = path.read_bytes()
    for end in range(0, len(whole), 97):
        path.write_bytes(whole[:end])
        with pytest.raises(LogFileError):
            read(path)


def test_a_file_with_any_changed_byte_is_read_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    recorded().save(path, FACTS, WORKLOAD)
    whole = path.read_bytes()
    refused = 0
    for place in range(0, len(whole), 13):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            read(path)
        except LogFileError:
            refused += 1
    assert refused > 20


def test_a_folder_gives_all_ranks_of_one_run(tmp_path: Path) -> None:
    for rank in (10, 2, 1):
        facts = LogFacts(**{**_fields(FACTS), "rank": rank, "world_size": 16, "groups": {}})
        recorded().save(tmp_path / file_name(rank), facts, WORKLOAD)
    assert [log.facts.rank for log in read_folder(tmp_path)] == [1, 2, 10]
    assert [log.facts.rank for log in read_folder(tmp_path / file_name(2))] == [2]
    recorded().save(tmp_path / file_name(3), FACTS, WORKLOAD)
    with pytest.raises(LogFileError, match=r"rank3\.oplog\.npz: has world_size 4, and rank 1 16"):
        read_folder(tmp_path)
    with pytest.raises(LogFileError, match="has no op logs"):
        read_folder(_empty(tmp_path))


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"
