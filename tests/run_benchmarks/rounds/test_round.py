"""What of a round's tasks was never started goes, too; what does not go is remembered."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from protocol.circumstance import Circumstance
from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.incoming.capture import Capture
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.facts import Questions, gather
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import NodePlan, Task
from run_benchmarks.results.blame import first_failure
from run_benchmarks.results.records import Verdict
from run_benchmarks.rounds.launching import bind
from run_benchmarks.rounds.round import RoundRunner
from run_benchmarks.rounds.watch import stop_workloads
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.runtimes.process import ProcessRuntime
from run_benchmarks.session.preparation import prepare
from run_benchmarks.state.journal import RoundStarted
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.rounds.contexts import context


class Created:
    """A task that was created and never started."""

    def __init__(self, name: str, left: set[str]) -> None:
        self._name, self._left = name, left

    def start(self) -> None:
        raise AssertionError("nobody asked for a start")

    def exists(self) -> bool:
        return False

    def trace(self) -> None:
        raise AssertionError("it has no stacks")

    def wait(self, seconds: float) -> int | None:
        raise AssertionError("it never ends")

    def trouble(self) -> Circumstance | None:
        return None

    def stop(self, grace: float) -> None:
        """Nothing of it runs."""

    def output(self, grace: float) -> str:
        return ""

    def remove(self) -> None:
        if self._name not in self._left:
            raise TaskError("localhost", "it does not go")
        self._left.remove(self._name)

    def finish(self, grace: float) -> str:
        raise AssertionError("it goes only once what it wrote is recorded")


class Runtime(ProcessRuntime):
    """Knows the tasks in `left`."""

    def __init__(self, left: set[str]) -> None:
        self._left = left

    def attach(self, host: Host, node: NodePlan, task: Task) -> RunningTask:
        return Created(task.name, self._left)


def round_and_its_tasks(load: Load, tmp_path: Path) -> tuple[RoundRunner, set[str]]:
    """A round of one node whose two tasks were created by another controller."""
    settings = load(f"{TEST}FLAGPERF_PATH_HOST = {str(tmp_path / 'deploy')!r}\n")
    prepared = prepare(settings, "run20261121191924")
    plan = prepared.plan
    case = plan.cases[0]
    left = {task.name for node in case.rounds[0].nodes for task in (node.workload, node.monitor)}
    assert len(left) == 2
    own = context(prepared, tmp_path / "result", runtime=Runtime(left))
    return RoundRunner(own, case, case.rounds[0], note=lambda _: None), left


def test_tasks_that_were_never_started_are_removed_and_what_there_is_collected(load: Load, tmp_path: Path) -> None:
    round_, left = round_and_its_tasks(load, tmp_path)
    started = RoundStarted(case="ONE", round=1, attempt=1, master_port=29500, hosts=["localhost"])
    (node,) = round_._nodes.values()
    there = Path(node.plan.log_dir_host)
    there.mkdir(parents=True)
    (there / "rank0.out.log").write_text("what there was\n")
    record = round_.resume(started)
    assert record.verdict is Verdict.ABORTED and "its tasks were gone" in record.reason
    assert left == set() and round_.left == {}
    assert list(record.nodes[0].files) == ["rank0.out.log"] and "rank1.out.log" in record.nodes[0].missing
    assert (round_.folder / "localhost_noderank0/rank0.out.log").read_text() == "what there was\n"


def test_what_was_left_out_or_cut_is_in_the_record(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    round_, _ = round_and_its_tasks(load, tmp_path)
    (node,) = round_._nodes.values()
    there = Path(node.plan.log_dir_host)
    there.mkdir(parents=True)
    (there / "latest").symlink_to("/abs/path")
    (there / "rank0.out.log").write_text("log\n")
    flood = Capture(4096)
    flood.add(b"x" * (1 << 20))
    monkeypatch.setattr(Created, "output", lambda *_: flood.text())
    record = round_.resume(RoundStarted(case="ONE", round=1, attempt=1, master_port=29500, hosts=["localhost"]))
    assert "localhost: latest is left out: a symbolic link" in record.warnings
    assert "localhost: output of the workload beyond MAX_OUTPUT_BYTES is left out" in record.warnings
    assert list(record.nodes[0].files) == ["rank0.out.log"]
    assert "latest is left out" in (round_.folder / "round.json").read_text()


class Endless(Created):
    """A task that another controller started, which ends by itself in a while, unless it is stopped before."""

    def __init__(self, name: str, left: set[str]) -> None:
        super().__init__(name, left)
        self.stopped = threading.Event()

    def exists(self) -> bool:
        return True

    def wait(self, seconds: float) -> int | None:
        return 143 if self.stopped.wait(10.0) else 0

    def stop(self, grace: float) -> None:
        self.stopped.set()


def round_with(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task_class: type[Endless]) -> RoundRunner:
    """A round that can be taken over: its tasks are there, of this class."""
    round_, left = round_and_its_tasks(load, tmp_path)
    (node,) = round_._nodes.values()
    Path(node.plan.log_dir_host).mkdir(parents=True)
    monkeypatch.setattr(Runtime, "attach", lambda _self, _host, _plan, task: task_class(task.name, left))
    return round_


def test_a_round_that_is_taken_over_has_only_the_rest_of_its_time(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    round_ = round_with(load, tmp_path, monkeypatch, Endless)
    limit = round_._case.time_limit
    started = RoundStarted(case="ONE", round=1, attempt=1, master_port=29500, hosts=["localhost"])
    record = round_.resume(started.model_copy(update={"time_ms": started.time_ms - round(limit * 1000)}))
    assert record.verdict is Verdict.TIMEOUT, record.reason
    assert record.reason.startswith(f"did not end within its time limit of {limit:g} s")


class Leaving(Endless):
    """A task that is removed while its round is taken over."""

    is_there = True

    def exists(self) -> bool:
        return self.is_there

    def wait(self, seconds: float) -> int | None:
        self.is_there = False
        raise TaskError("localhost", "it vanished without an exit code")


def test_tasks_that_go_while_their_round_is_taken_over_are_no_failure(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Slurm does with a step seconds after its srun was killed together with the controller."""
    round_ = round_with(load, tmp_path, monkeypatch, Leaving)
    record = round_.resume(RoundStarted(case="ONE", round=1, attempt=1, master_port=29500, hosts=["localhost"]))
    assert record.verdict is Verdict.ABORTED and "its tasks were gone" in record.reason


def test_a_flood_of_a_host_is_few_warnings(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in the journal, too, and a warning that is not read is none."""
    round_, _ = round_and_its_tasks(load, tmp_path)
    monkeypatch.setattr(Created, "output", lambda *_: f"supervise: {'x' * 1000}\n" * 1000)
    record = round_.resume(RoundStarted(case="ONE", round=1, attempt=1, master_port=29500, hosts=["localhost"]))
    said = [each for each in record.warnings if "superv" in each]
    assert len(said) == 6 and max(map(len, said)) < 250, said
    assert said[-1] == "localhost: 995 more lines of its supervisor"


@pytest.mark.parametrize("error", [None, "its Docker engine does not answer"])
def test_a_node_with_an_error_was_not_merely_stopped(error: str | None, load: Load, tmp_path: Path) -> None:
    """Of what this run stopped nothing is told; an error is the reason of its round, whatever is stopped later."""
    round_, left = round_and_its_tasks(load, tmp_path)
    (node,) = round_._nodes.values()
    node.workload, node.outcome.error = Created(node.plan.workload.name, left), error
    stop_workloads(round_._nodes)
    assert node.outcome.stopped is (error is None)
    failure = first_failure([node.outcome], {}, timed_out=False)
    assert (failure and failure.message) == error


@pytest.mark.parametrize("lost", [False, True], ids=["refuses", "lost"])
def test_what_could_not_be_ended_is_remembered(load: Load, tmp_path: Path, lost: bool) -> None:
    """Of a host that is lost both tasks; where it is not, the one that does not go."""
    round_, left = round_and_its_tasks(load, tmp_path)
    (node,) = round_._nodes.values()
    node.monitor, node.workload = Created(node.plan.monitor.name, left), Created("another", left)
    node.done, node.lost = True, lost
    round_._make_folders()
    round_._end()
    assert round_.left == {"localhost": [node.workload, node.monitor] if lost else [node.workload]}


LINKS = ("/dev/infiniband", "/dev/nvidia-caps-imex-channels/channel0")


@pytest.mark.parametrize(
    ("nnodes", "there", "given"), [(2, LINKS, LINKS), (2, LINKS[:1], LINKS[:1]), (2, (), ()), (1, LINKS, ())]
)
def test_containers_get_rdma_devices_and_the_imex_channel_of_their_host_where_ranks_meet_over_them(
    load: Load, tmp_path: Path, nnodes: int, there: tuple[str, ...], given: tuple[str, ...]
) -> None:
    text = f"{TEST}FLAGPERF_PATH_HOST = {str(tmp_path / 'deploy')!r}\nPYTHON = {sys.executable!r}\n"
    text = text.replace('"nproc": 2', f'"nproc": 2, "nnodes": {nnodes}')
    settings = load(text, 'HOSTS = ["node1", "node2"]\nSSH_USER = "nobody"\n')
    prepared = prepare(settings, "run20261121191924")
    plan = prepared.plan
    hosts: dict[str, Host] = {name: LocalHost(name) for name in plan.hosts}
    folder = str(tmp_path / "facts")
    asked = Questions(
        deploy=folder,
        log_root=folder,
        code_dir=folder,
        python=None,
        packages=(),
        master=None,
        names=(),
        device_globs=(),
        data=(),
    )
    facts = replace(gather(LocalHost("localhost"), asked), link_devices=there, devices=("/dev/abacus0",))
    reports = {name: HostReport(host=name, facts=facts) for name in hosts}
    own = context(prepared, tmp_path / "result", plan=plan, hosts=hosts, reports=reports, runtime=Runtime(set()))
    round_ = RoundRunner(own, plan.cases[0], plan.cases[0].rounds[0], note=lambda _: None)
    bound = [bind(node, own, plan.cases[0].rounds[0], 29500) for node in round_._nodes.values()]
    assert [each.devices for each in bound] == [given] * nnodes
    assert {each.device_files for each in bound} == {("/dev/abacus0",)}
