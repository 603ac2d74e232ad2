"""The journal survives any cut, and one controller at a time works on a run."""

import os
import resource
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.results.records import JobRecord, Verdict
from run_benchmarks.session.run_folder import new_run_folder, owner_of
from run_benchmarks.state.journal import (
    JobNoted,
    Journal,
    JournalError,
    JournalState,
    OpenRound,
    OwedCollection,
    RoundCollecting,
    RoundEnded,
    RoundStarted,
    RunEnded,
    RunStarted,
)
from run_benchmarks.state.run_lock import controlling, is_controlled

STARTED = RunStarted(run_id="run1", pid=1, plan_digest="d", cluster_conf="c", test_conf="t", rounds={"A": 2})
BEGUN = RoundStarted(case="A", round=1, attempt=1, master_port=29500, hosts=["h1"])
ENDED = RoundEnded(case="A", round=1, attempt=1, verdict=Verdict.PASS, reason="all ranks finished")
SECOND = RoundStarted(case="A", round=2, attempt=3, master_port=29501, hosts=["h1"])


def opened(state: JournalState) -> list[RoundStarted]:
    return [each.started for each in state.open.values()]


def written(folder: Path) -> Journal:
    journal = Journal(folder)
    for event in (STARTED, BEGUN, ENDED, SECOND):
        journal.append(event)
    return journal


def test_what_ended_and_what_is_open(tmp_path: Path) -> None:
    state = written(tmp_path).read()
    assert state.ended == {("A", 1): ENDED} and opened(state) == [SECOND] and state.run_ended is None
    assert state.attempts == {("A", 1): 1, ("A", 2): 3}
    assert stat.S_IMODE((tmp_path / "journal.jsonl").stat().st_mode) & 0o137 == 0


@pytest.mark.parametrize("is_ended", [True, False])
def test_how_workloads_ended_is_of_the_open_round_alone(is_ended: bool, tmp_path: Path) -> None:
    """A controller would collect the next round, whose ranks still run. A torn line may be that of the round's end."""
    journal = Journal(tmp_path)
    collecting = RoundCollecting(case="A", round=1, attempt=1, nodes={}, early_end=None, phase_seconds={})
    for event in (STARTED, BEGUN, collecting):
        journal.append(event)
    assert journal.read().open == {"A": OpenRound(started=BEGUN, collecting=collecting)}
    if is_ended:
        journal.append(ENDED)
        assert journal.read().open == {}
    journal.append(SECOND)
    assert [*journal.read().open.values()] == [OpenRound(started=SECOND)]


def test_rounds_of_two_cases_are_open_and_the_end_of_one_leaves_the_other(tmp_path: Path) -> None:
    """As of cases that run side by side: each is collected, ends, and owes files, by itself."""
    journal, other = written(tmp_path), BEGUN.model_copy(update={"case": "B", "hosts": ["h2"]})
    journal.append(other)
    collecting = RoundCollecting(case="A", round=2, attempt=3, nodes={}, early_end=None, phase_seconds={})
    journal.append(collecting)
    both = {"A": OpenRound(started=SECOND, collecting=collecting), "B": OpenRound(started=other)}
    assert journal.read().open == both
    journal.append(ENDED.model_copy(update={"round": 2, "attempt": 3, "owed": ["h1"]}))
    state = journal.read()
    assert state.open == {"B": OpenRound(started=other)}
    assert state.owed == {("A", 2, 3): OwedCollection(started=SECOND, collecting=collecting, hosts=["h1"])}


def test_what_is_owed_until_it_is_collected(tmp_path: Path) -> None:
    """The collection of an earlier attempt changes neither the attempt that counts nor the open round."""
    journal = Journal(tmp_path)
    collecting = RoundCollecting(case="A", round=1, attempt=1, nodes={}, early_end=None, phase_seconds={})
    failed = ENDED.model_copy(update={"verdict": Verdict.FAIL, "owed": ["h1", "h2"]})
    second = ENDED.model_copy(update={"attempt": 2})
    for event in (STARTED, BEGUN, collecting, failed, BEGUN.model_copy(update={"attempt": 2}), second, SECOND):
        journal.append(event)
    state = journal.read()
    assert state.owed == {("A", 1, 1): OwedCollection(started=BEGUN, collecting=collecting, hosts=["h1", "h2"])}
    assert state.failures["A", 1] == 1
    journal.append(failed.model_copy(update={"owed": ["h2"]}))
    assert [owed.hosts for owed in journal.read().owed.values()] == [["h2"]]
    journal.append(ENDED)
    state = journal.read()
    assert (state.owed, opened(state), state.ended["A", 1]) == ({}, [SECOND], second)
    assert state.failures["A", 1] == 0 and state.attempts == {("A", 1): 2, ("A", 2): 3}


def test_an_event_of_which_the_disk_takes_a_part_is_an_error(tmp_path: Path) -> None:
    """The kernel writes what fits below a limit of the file's size, as it does on a disk that is nearly full."""
    journal = written(tmp_path)
    size, limits = journal.path.stat().st_size, resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.append(ENDED.model_copy(update={"round": 2, "attempt": 3}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert journal.path.stat().st_size == size + 20 and opened(journal.read()) == [SECOND]
    journal.append(ENDED.model_copy(update={"round": 2, "attempt": 3}))
    assert opened(journal.read()) == []


def test_an_event_is_on_the_disk_before_the_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that loses power must find the round that it began."""
    synced: list[tuple[str, int]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.stat().st_size if path.is_file() else 0))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    journal = Journal(tmp_path)
    journal.append(STARTED)
    first = journal.path.stat().st_size
    assert synced == [("journal.jsonl", first), (tmp_path.name, 0)], "the line, then the new file's name"
    journal.append(BEGUN)
    assert synced[2:] == [("journal.jsonl", journal.path.stat().st_size)] and first < journal.path.stat().st_size


def test_a_run_that_a_job_begins_starts_with_its_nodes(tmp_path: Path) -> None:
    """What it waits in the queue is no part of the time that RUN_TIME_LIMIT bounds."""
    journal, job = Journal(tmp_path), JobRecord(id="7", hosts="")
    journal.append(STARTED.model_copy(update={"time_ms": 900}))
    journal.append(JobNoted(job=job, time_ms=1000))
    assert journal.read().is_queued and journal.read().begun_ms == 900
    held = job.model_copy(update={"hosts": "n[1-2]", "queue_seconds": 60.0, "is_ours": False})
    journal.append(JobNoted(job=held, time_ms=61000))
    journal.append(STARTED.model_copy(update={"time_ms": 61001}))
    found = journal.read()
    assert not found.is_queued and found.begun_ms == 61000
    assert found.job == held.model_copy(update={"is_ours": True}), "its controller runs inside of it"
    journal.append(JobNoted(job=held.model_copy(update={"id": "8"}), time_ms=90000))
    journal.append(JobNoted(job=held, time_ms=91000))
    found = journal.read()
    assert (found.begun_ms, list(found.jobs), found.job and found.job.id) == (61000, ["8", "7"], "7")


def test_a_resumed_run_has_not_ended(tmp_path: Path) -> None:
    journal = written(tmp_path)
    journal.append(RunEnded(verdict=Verdict.ABORTED, exit_code=130))
    assert journal.read().run_ended is not None
    journal.append(STARTED)
    assert journal.read().run_ended is None and journal.read().ended == {("A", 1): ENDED}


@pytest.mark.parametrize("cut", [1, 5, 60])
def test_a_cut_line_counts_as_not_written_and_the_next_one_is_whole(tmp_path: Path, cut: int) -> None:
    journal = written(tmp_path)
    journal.path.write_bytes(journal.path.read_bytes()[:-cut])
    state = journal.read()
    assert state.ended == {("A", 1): ENDED}
    assert opened(state) == ([SECOND] if cut == 1 else [])
    journal.append(SECOND)
    assert opened(journal.read()) == [SECOND]


def test_no_journal_and_no_run(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=str(tmp_path)):
        Journal(tmp_path).read()
    Journal(tmp_path).append(ENDED)
    with pytest.raises(JournalError, match="does not begin with a run"):
        Journal(tmp_path).read()


def test_the_lock_is_held_by_one_and_freed_by_a_kill(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from run_benchmarks.state.run_lock import controlling\n"
        "with controlling(Path(sys.argv[1])):\n print('held', flush=True); time.sleep(60)"
    )
    assert not is_controlled(tmp_path)
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        assert is_controlled(tmp_path)
        with pytest.raises(JournalError, match="a controller works on this run"), controlling(tmp_path):
            pass
    finally:
        other.kill()
        other.communicate()
    assert not is_controlled(tmp_path)
    with controlling(tmp_path):
        assert is_controlled(tmp_path)


def test_runs_of_the_same_second_and_of_two_result_folders_differ(tmp_path: Path) -> None:
    first, second = new_run_folder(tmp_path / "a"), new_run_folder(tmp_path / "a")
    assert first != second and first.is_dir() and second.is_dir()
    assert stat.S_IMODE(first.stat().st_mode) == 0o750
    assert owner_of(tmp_path / "a") == owner_of(tmp_path / "a")
    (tmp_path / "b").mkdir()
    assert owner_of(tmp_path / "b") != owner_of(tmp_path / "a")
