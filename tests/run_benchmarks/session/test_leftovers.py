"""A home that hosts share: what could not be collected of one is left alone by the others' clean-up."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.plan.plan import Plan
from run_benchmarks.results.records import NodeRecord
from run_benchmarks.session.leftovers import remove_collected
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.results.rounds import round_record

NAMES = ("node1", "node10", "node 2")
PARTS = ("rank0.out.log", "checkpoints/step 1/model")


@pytest.fixture
def plan(load: Load, tmp_path: Path) -> Plan:
    return prepare(load(f"{TEST}FLAGPERF_LOG_PATH_HOST = {str(tmp_path / 'home')!r}\n"), "run20261121191924").plan


def used_by_all(plan: Plan) -> dict[str, list[Path]]:
    """What two attempts of a round left in the home that all of NAMES share, by host."""
    found: dict[str, list[Path]] = {name: [] for name in NAMES}
    for attempt in ("round1", "round1_try2"):
        for rank, name in enumerate(NAMES):
            node = Path(plan.log_root_host) / f"ONE/{attempt}/{name}_noderank{rank}"
            state = node.with_name(f"{node.name}.workload")
            for path in (*(node / part for part in PARTS), state / "output.log"):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
                found[name].append(path)
    return found


def nodes(tmp_path: Path, lost: str) -> list[NodeRecord]:
    (node,) = round_record(tmp_path / "round").nodes[:1]
    return [node.model_copy(update={"host": name, "incomplete": name == lost}) for name in NAMES]


@pytest.mark.parametrize("answers_again", [False, True])
def test_what_is_a_lost_host_s_survives_the_others_clean_up(
    plan: Plan, tmp_path: Path, answers_again: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = used_by_all(plan)
    hosts: dict[str, Host] = {name: LocalHost(name) for name in NAMES if answers_again or name != "node1"}
    with caplog.at_level(logging.WARNING, "clusterdyno"):
        remove_collected(hosts, plan, nodes(tmp_path, lost="node1"), "run.py clean RUN")
    assert all(path.exists() for path in files["node1"])
    assert not any(path.exists() for name in NAMES[1:] for path in files[name])
    assert ("until `run.py clean RUN`" in caplog.text) is answers_again


def test_nothing_is_left_where_everything_is_here(plan: Plan, tmp_path: Path) -> None:
    """Whoever comes last; and where one comes a second time."""
    used_by_all(plan)
    hosts: dict[str, Host] = {name: LocalHost(name) for name in NAMES}
    collected = nodes(tmp_path, lost="")
    for _ in range(2):
        remove_collected(hosts, plan, collected, "clean")
        assert not Path(plan.log_root_host).exists()


def test_what_is_no_host_s_stays(plan: Plan, tmp_path: Path) -> None:
    used_by_all(plan)
    kept = Path(plan.log_root_host) / "ONE/round1/notes"
    kept.write_text("by hand")
    remove_collected({name: LocalHost(name) for name in NAMES}, plan, nodes(tmp_path, lost=""), "clean")
    assert [path for path in Path(plan.log_root_host).rglob("*") if path.is_file()] == [kept]


@pytest.mark.parametrize("has_files", [False, True])
def test_a_host_whose_tasks_never_started_has_nothing_to_collect(
    plan: Plan, tmp_path: Path, has_files: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Path(plan.log_root_host) / "ONE/round1/node1_noderank0"
    folder.mkdir(parents=True)
    if has_files:
        (folder / "rank0.out.log").touch()
    (node,) = nodes(tmp_path, lost="")[:1]
    without = node.model_copy(update={"files": {}})
    with caplog.at_level(logging.WARNING, "clusterdyno"):
        remove_collected({"node1": LocalHost("node1")}, plan, [without], "run.py clean RUN")
    assert folder.exists() is has_files
    assert ("until `run.py clean RUN`" in caplog.text) is has_files
