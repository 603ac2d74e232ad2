"""What clean refuses before it touches a host, since it would find nothing and say that nothing was left."""

import time
from pathlib import Path

import pytest

from run_benchmarks.commands.cleaning import check_run, clean
from run_benchmarks.commands.run_reference import find_run
from run_benchmarks.console.command_line import ROOT, own_command
from run_benchmarks.errors import ConnectError, InputProblems
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.plan.plan import Plan
from run_benchmarks.results.seal import node_folder
from run_benchmarks.runtimes.base import Bound, RunningTask
from run_benchmarks.runtimes.process import ProcessRuntime
from run_benchmarks.session.preparation import prepare
from run_benchmarks.state.journal import Journal, JournalError, RunStarted
from run_benchmarks.state.run_lock import controlling
from tests.run_benchmarks.conftest import Load


@pytest.fixture
def plan(load: Load) -> Plan:
    return prepare(load(), "run20261121191924").plan


@pytest.mark.parametrize(
    ("changed", "refused"),
    [
        ({}, ""),
        ({"runtime": None, "log_root_host": None}, ""),
        ({"runtime": "docker"}, "RUNTIME 'docker'"),
        ({"log_root_host": "/elsewhere/.hosts/run1"}, "/elsewhere/.hosts/run1"),
    ],
    ids=["the same", "a journal without them", "another runtime", "another place"],
)
def test_a_run_that_was_begun_otherwise(
    plan: Plan, tmp_path: Path, changed: dict[str, str | None], refused: str
) -> None:
    began = {"runtime": plan.runtime, "log_root_host": plan.log_root_host, **changed}
    fields = {"run_id": "run1", "pid": 1, "plan_digest": "d", "cluster_conf": "c", "test_conf": "t", "rounds": {}}
    Journal(tmp_path).append(RunStarted.model_validate({**fields, **began}))
    if refused:
        with pytest.raises(JournalError, match=refused):
            check_run(tmp_path, plan)
    else:
        check_run(tmp_path, plan)


def test_a_run_that_is_worked_on_and_one_that_is_not_there(
    plan: Plan, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with controlling(tmp_path), pytest.raises(JournalError, match="a controller works on this run") as caught:
        check_run(tmp_path, plan)
    assert f"`{own_command('stop', str(tmp_path))}`" in str(caught.value)
    assert capsys.readouterr().err == ""
    check_run(tmp_path / "run20200101000000", plan)
    assert "there is no " in capsys.readouterr().err


@pytest.mark.parametrize(
    "name",
    [
        "",
        "run",
        "..",
        "run20261121191924/..",
        "run20261121191924\n",
        "xrun20261121191924",
        "run2026112119192",
        "run" + "\u0661" * 14,
    ],
)
def test_a_name_that_is_no_runs_reaches_neither_a_host_nor_a_folder(plan: Plan, tmp_path: Path, name: str) -> None:
    """It becomes part of a path that is removed."""
    kept = tmp_path / "kept"
    kept.touch()
    hosts = {"localhost": LocalHost("localhost")}
    with pytest.raises(InputProblems, match="name of a run folder"):
        clean(hosts, plan.model_copy(update={"run_id": name, "log_root_host": str(tmp_path)}), ProcessRuntime())
    assert kept.exists()
    (tmp_path / name).mkdir(parents=True, exist_ok=True)
    for word in (name, str(tmp_path / name)):
        with pytest.raises(InputProblems, match="expected the name of a run in "):
            find_run(word, None, tmp_path / "none.py")


def test_a_folder_is_told_as_removed_where_there_was_one(plan: Plan, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    changed, hosts = plan.model_copy(update={"log_root_host": str(folder)}), {"localhost": LocalHost("localhost")}
    assert clean(hosts, changed, ProcessRuntime()).succeeded["localhost"] == [str(folder)]
    assert not folder.exists()
    assert clean(hosts, changed, ProcessRuntime()).succeeded["localhost"] == []


class LateHost(LocalHost):
    """A host of a shared home whose login comes once others may have removed what is there, or not at all."""

    def __init__(self, name: str, home: Path, *, is_lost: bool = False) -> None:
        super().__init__(name)
        self._home, self.is_lost = home, is_lost

    def connect(self) -> None:
        limit = time.monotonic() + 1.0
        while self._home.exists() and time.monotonic() < limit:
            time.sleep(0.02)
        if self.is_lost:
            raise ConnectError(self.name, "no route to host")


def test_on_a_shared_home_the_ranks_of_every_host_are_ended_before_their_states_are_removed(
    plan: Plan, tmp_path: Path
) -> None:
    """A host that cannot be reached keeps what its ranks are found by, and the next clean ends them."""
    home = tmp_path / "logs"
    (tmp_path / "code").mkdir()
    (tmp_path / "code/any").symlink_to(ROOT)
    changed = plan.model_copy(update={"log_root_host": str(home), "code_dir_host": str(tmp_path / "code/digest")})
    late = LateHost("node2", home, is_lost=True)
    hosts: dict[str, LocalHost] = {"node1": LocalHost("node1"), "node2": late}
    tasks: dict[str, RunningTask] = {}
    for host in hosts.values():
        node = plan.cases[0].rounds[0].nodes[0]
        task = node.workload.model_copy(update={"argv": (node.workload.argv[0], "-c", "import time; time.sleep(600)")})
        folder = str(home / "ONE/round1" / node_folder(host.name, 0))
        node = node.model_copy(update={"host": host.name, "workdir": str(ROOT), "log_dir_host": folder})
        bound = Bound(master_port=29500, facts={})
        tasks[host.name] = ProcessRuntime().create(LocalHost("localhost"), node, task, bound)
        tasks[host.name].start()
    try:
        result = clean(hosts, changed, ProcessRuntime())
        assert result.succeeded == {"node1": ["ONE/round1/node1_noderank0.workload"]} and [*result.failed] == ["node2"]
        assert tasks["node1"].wait(30.0) is not None and tasks["node2"].wait(0.0) is None
        late.is_lost = False
        result = clean(hosts, changed, ProcessRuntime())
        assert not result.failed and "ONE/round1/node2_noderank0.workload" in result.succeeded["node2"]
        assert not home.exists()
    finally:
        for running in tasks.values():
            running.remove()
