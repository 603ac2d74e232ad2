"""Before a round: the node's folder, and a master port that no other run takes."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection import master_port
from run_benchmarks.inspection.master_port import CLAIM_MINUTES, claim_port
from run_benchmarks.plan.plan import Plan
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.rounds.preparing import prepare_node
from run_benchmarks.session.preparation import prepare
from run_benchmarks.state.context import RunningNode
from tests.run_benchmarks.conftest import Load

SECONDS = 30.0
RUN = "run20261121191924"


class Runs:
    """Plans and nodes of several runs of one user on this machine."""

    def __init__(self, load: Load, folder: Path) -> None:
        self._prepared = prepare(load(), RUN)
        self._folder = folder
        self.warnings: list[str] = []

    def plan(self, owner: str) -> Plan:
        plan = self._prepared.named(RUN, owner).plan
        return plan.model_copy(update={"ports_dir_host": str(self._folder / owner / "ports")})

    def port(self, owner: str, port_from: int | None) -> int | None:
        plan = self.plan(owner)
        own = self._folder / owner
        places = {"log_dir_host": str(own), "case_file_host": str(own / "case.json")}
        node = plan.cases[0].rounds[0].nodes[0].model_copy(update=places)
        outcome = NodeOutcome(node=node, folder=self._folder)
        running = RunningNode(plan=node, host=LocalHost("localhost"), outcome=outcome)
        case = plan.cases[0].case_file
        found = prepare_node(running, plan, case=case, port_from=port_from, deadline=SECONDS)
        assert (self._folder / owner).is_dir()
        self.warnings += running.warnings
        return found


@pytest.fixture
def runs(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return Runs(load, tmp_path)


@pytest.fixture
def free_from() -> int:
    """The first of some ports where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return min(int(probe.getsockname()[1]), 60_000)


def test_a_node_that_is_no_master_claims_nothing(runs: Runs, tmp_path: Path) -> None:
    assert runs.port("one", None) is None
    assert not (tmp_path / "home").exists()


def test_the_case_file_is_put_there_and_put_right(runs: Runs, tmp_path: Path) -> None:
    runs.port("one", None)
    file, case = tmp_path / "one" / "case.json", runs.plan("one").cases[0].case_file
    assert (file.read_text(), file.stat().st_mode & 0o777) == (case.text, 0o400)
    assert runs.warnings == []
    runs.port("one", None)
    assert runs.warnings == []
    file.chmod(0o600)
    file.write_text(case.text.replace('"iterations": ', '"iterations": 1'))
    runs.port("one", None)
    assert (file.read_text(), file.stat().st_mode & 0o777) == (case.text, 0o400)
    assert runs.warnings == ["localhost: its case.json differed from that of this run and was replaced"]
    assert [path.name for path in file.parent.iterdir()] == ["case.json"]


def test_each_run_has_its_own_port_and_keeps_it(runs: Runs, free_from: int) -> None:
    first = runs.port("one", free_from)
    second = runs.port("two", free_from)
    assert first is not None and second is not None and free_from <= first < second
    assert (runs.port("one", free_from), runs.port("two", free_from)) == (first, second)


def test_a_port_claimed_alone_is_that_of_the_run_s_round(runs: Runs, free_from: int) -> None:
    """`run.py diagnose` claims it so: it neither takes another run's port nor loses its own."""
    alone = claim_port(LocalHost("localhost"), runs.plan("one"), free_from, deadline=SECONDS)
    assert runs.port("one", free_from) == alone and runs.port("two", free_from) != alone


def test_runs_that_begin_together_get_different_ports(runs: Runs, free_from: int) -> None:
    found: list[int | None] = []
    begin = threading.Barrier(12)

    def claim(owner: str) -> None:
        begin.wait()
        found.append(runs.port(owner, free_from))

    threads = [threading.Thread(target=claim, args=(f"run{number}",)) for number in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 12 and None not in found


@pytest.mark.parametrize("home", ["/proc/nobody", ""])
def test_who_has_no_home_claims_beside_the_code(
    runs: Runs, free_from: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    monkeypatch.setenv("HOME", home)
    (tmp_path / "one").mkdir()
    port = runs.port("one", free_from)
    assert [path.name for path in (tmp_path / "one/ports").iterdir()] == [f"{os.uname().nodename}-{port}"]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_port_where_somebody_listens_is_left_alone(runs: Runs, free_from: int, family: socket.AddressFamily) -> None:
    first = runs.port("one", free_from)
    assert first is not None
    with socket.create_server(("", first), family=family):
        assert runs.port("one", first) != first


def test_an_old_claim_on_a_port_where_nobody_listens_is_void(runs: Runs, free_from: int, tmp_path: Path) -> None:
    first = runs.port("one", free_from)
    claim = next((tmp_path / "home/.clusterdyno/ports").iterdir())
    old = time.time() - (CLAIM_MINUTES + 2) * 60
    os.utime(claim, (old, old))
    assert runs.port("two", free_from) == first
    assert runs.port("one", free_from) != first
    assert claim.stat().st_mode & 0o007 == 0


def test_no_port_left_is_said(runs: Runs, free_from: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(master_port, "PORTS_TRIED", 1)
    first = runs.port("one", free_from)
    assert first == free_from
    with pytest.raises(TaskError, match=f"no free master port from {free_from} on"):
        runs.port("two", free_from)


@pytest.mark.parametrize(
    "said", ["port 22", "port 99999999", f"port {'9' * 5000}", "port \u0669", "port 29500 ", "port"]
)
def test_a_port_that_was_not_offered_is_none(said: str) -> None:
    with pytest.raises(TaskError, match="no free master port from 29500 on"):
        master_port.claimed_port("node1", [said], 29500)
    assert master_port.claimed_port("node1", [said, "port 29501"], 29500) == 29501
