"""What is removed from hosts at the end of a run: of each attempt and host, what is on the head node by its record."""

import logging
from collections.abc import Collection
from pathlib import Path

import pytest

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.results.records import CollectedFile, NodeRecord, write_record
from run_benchmarks.session.leftovers import remove_collected
from tests.run_benchmarks.results.rounds import round_record

NAMES = ("node1", "node10", "node 2")
ATTEMPTS = ("round1", "round1_try2")
PARTS = ("rank0.out.log", "checkpoints/step 1/model")
CLEAN = "`run.py clean RUN`"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """What two attempts of a round left in the home that all of NAMES share."""
    for attempt in ATTEMPTS:
        for rank, name in enumerate(NAMES):
            folder = tmp_path / f"home/ONE/{attempt}/{name}_noderank{rank}"
            for path in (*(folder / part for part in PARTS), folder.with_name(f"{folder.name}.workload") / "exit.json"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(path.name)
    (tmp_path / "home/ONE/case.json").write_text("{}")
    return tmp_path / "home"


def files(home: Path) -> set[Path]:
    """All but the cases' settings, which no rank reads any more."""
    return {path for path in home.rglob("*") if path.is_file() and path != home / "ONE/case.json"}


def files_of(home: Path, name: str) -> set[Path]:
    return {path for path in files(home) if f"/{name}_noderank" in str(path)}


def collect(home: Path, result: Path, attempt: str, *, lost: Collection[str] = ()) -> None:
    """Copy everything of an attempt but what is in `lost`, and write its record."""
    template = round_record(result.parent / f"template of {attempt}")
    nodes: list[NodeRecord] = []
    for rank, name in enumerate(NAMES):
        folder = f"ONE/{attempt}/{name}_noderank{rank}"
        for each in PARTS:
            (result / folder / each).parent.mkdir(parents=True, exist_ok=True)
            (result / folder / each).write_bytes((home / folder / each).read_bytes())
        here = {each: CollectedFile(size=(home / folder / each).stat().st_size, sha256="0" * 64) for each in PARTS}
        update = {"host": name, "node_rank": rank, "files": here, "incomplete": name in lost}
        nodes.append(template.nodes[0].model_copy(update=update))
    write_record(result / "ONE" / attempt / "round.json", template.model_copy(update={"nodes": nodes}))


def hosts(*names: str) -> dict[str, Host]:
    return {name: LocalHost(name) for name in names}


@pytest.mark.parametrize("answers_again", [False, True])
def test_what_is_a_lost_host_s_survives_the_others_clean_up(
    home: Path, tmp_path: Path, answers_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    for attempt in ATTEMPTS:
        collect(home, tmp_path / "result", attempt, lost=["node1"])
    lost = files_of(home, "node1")
    with caplog.at_level(logging.WARNING, "clusterdyno"):
        remove_collected(hosts(*NAMES[not answers_again :]), str(home), tmp_path / "result", CLEAN)
    assert files(home) == lost
    assert (f"until {CLEAN}" in caplog.text) is answers_again


def test_nothing_is_left_where_everything_is_here(home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever comes last; and where one comes a second time."""
    for attempt in ATTEMPTS:
        collect(home, tmp_path / "result", attempt)
    for _ in range(2):
        remove_collected(hosts(*NAMES), str(home), tmp_path / "result", CLEAN)
        assert not home.exists() and caplog.text == ""


def test_what_is_no_host_s_stays(home: Path, tmp_path: Path) -> None:
    for attempt in ATTEMPTS:
        collect(home, tmp_path / "result", attempt)
    kept = home / "ONE/round1/notes"
    kept.write_text("by hand")
    remove_collected(hosts(*NAMES), str(home), tmp_path / "result", CLEAN)
    assert files(home) == {kept}


@pytest.mark.parametrize("damage", ["no record", "half a record", "a file gone", "a file cut", "its task runs"])
def test_an_attempt_without_evidence_stays(home: Path, tmp_path: Path, damage: str) -> None:
    """The first attempt's; the second is collected, and removed."""
    result = tmp_path / "result"
    for attempt in ATTEMPTS:
        collect(home, result, attempt)
    record, log = result / "ONE/round1/round.json", result / "ONE/round1/node1_noderank0" / PARTS[1]
    running = home / "ONE/round1/node1_noderank0.workload"
    if damage == "no record":
        record.unlink()
    elif damage == "half a record":
        record.write_bytes(record.read_bytes()[:-20])
    elif damage == "a file gone":
        log.unlink()
    elif damage == "a file cut":
        log.write_bytes(log.read_bytes()[:-1])
    else:
        (running / "exit.json").rename(running / "supervisor.json")
    first = {path for path in files(home) if "/round1/" in str(path)}
    whose = {"a file gone": "/node1_", "a file cut": "/node1_", "its task runs": str(running)}.get(damage, "")
    remove_collected(hosts(*NAMES), str(home), result, CLEAN)
    assert files(home) == {path for path in first if whose in str(path)}


@pytest.mark.parametrize("has_files", [False, True])
def test_a_host_whose_tasks_never_started_has_nothing_to_collect(
    tmp_path: Path, has_files: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "home/ONE/round1/node1_noderank0"
    folder.mkdir(parents=True)
    if has_files:
        (folder / "rank0.out.log").touch()
    with caplog.at_level(logging.WARNING, "clusterdyno"):
        remove_collected(hosts("node1"), str(tmp_path / "home"), tmp_path / "result", CLEAN)
    assert folder.exists() is has_files
    assert (f"until {CLEAN}" in caplog.text) is has_files
