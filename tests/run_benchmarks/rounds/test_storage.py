"""A file system that runs full or read-only in a round of several is a finding of that round, and of no other."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from protocol.finding import PartFinding
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.neighbours import look
from run_benchmarks.inspection.storage import FULL, FileSystem, storage_findings
from run_benchmarks.plan.plan import Plan
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.records import Verdict
from run_benchmarks.rounds.integrity import Neighbourhood
from run_benchmarks.rounds.owed import stored_findings
from run_benchmarks.rounds.recording import with_findings
from run_benchmarks.runtimes.process import ProcessRuntime
from run_benchmarks.session.preparation import prepare
from run_benchmarks.state.context import RunningNode
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.local_run import LIGHT_ONE, Run
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.rounds import node_plan

# As df -Pk, df -Pi (POSIX) and findmnt (util-linux) print it: blocks or inodes, used, free; mount options.
DF = """#!/bin/sh
space={space}; if [ "$1" = -Pi ]; then space={inodes}; fi
echo Filesystem 1024-blocks Used Available Capacity Mounted on; echo {device} 1000 $((1000 - space)) $space 1% /
"""
Tell = Callable[..., None]


@pytest.fixture
def plan(load: Load) -> Plan:
    return prepare(load(TEST), "run20261121191924").plan


@pytest.fixture
def tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tell:
    """Lets the host tell other file systems: free thousandths of space and inodes, and mount options."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def write(space: int = 500, inodes: int = 500, options: str = "rw,relatime", device: str = "/dev/x") -> None:
        df = DF.format(space=space, inodes=inodes, device=device)
        for name, text in (("df", df), ("findmnt", f"#!/bin/sh\necho {options}\n")):
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)

    write()
    return write


def rounds_of(
    plan: Plan, folder: Path, *during: Callable[[], None], left: Sequence[str] = ()
) -> list[list[PartFinding]]:
    """The findings of rounds, in each of which something happens."""
    outcome = NodeOutcome(node=node_plan("localhost", 0, (0,)), folder=folder, exit_code=0)
    nodes = {"localhost": RunningNode(plan=outcome.node, host=LocalHost("localhost"), outcome=outcome)}
    found = []
    for happens in during:
        hood = Neighbourhood(plan, ProcessRuntime())
        hood.look_before(nodes)
        happens()
        hood.look_after(nodes, left)
        assert len(hood.unseen) == len(left), hood.unseen
        found.append([*hood.findings()])
    return found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"space": 9}, "ran full during the round: 99 % is used"),
        ({"inodes": 0}, "ran full during the round: 99 % is used"),
        ({"options": "ro,relatime"}, "became read-only during the round"),
        ({"options": "rw,emergency_ro"}, "became read-only during the round"),
    ],
)
def test_the_round_in_which_it_happens_has_the_finding_and_drains_the_host(
    plan: Plan, tmp_path: Path, tell: Tell, change: dict[str, object], said: str
) -> None:
    first, second, third = rounds_of(plan, tmp_path, lambda: None, lambda: tell(**change), lambda: None)
    assert first == [] and third == [], "before it, and when it was so already"
    (one,) = second
    assert one.evidence.endswith(said) and {"/", "/tmp"} <= {*one.evidence.split(" of ")[1].replace(",", "").split()}
    assert (one.kind, one.severity, one.drained_hosts) == ("file_system", "fault", ("localhost",))
    record = with_findings(case(model="base"), a_round([]), second)
    assert record.verdict is Verdict.DEGRADED and record.reason.startswith("host localhost: the file system of ")
    assert [each.host for each in drain_list({"C": [record]})] == ["localhost"]
    failed = a_round([]).model_copy(update={"verdict": Verdict.FAIL, "reason": "rank 0 failed"})
    assert said in with_findings(case(model="base"), failed, second).reason


def test_a_root_that_becomes_read_only_is_found_though_the_health_check_takes_it_for_an_image(
    plan: Plan, tmp_path: Path, tell: Tell
) -> None:
    only_root = '#!/bin/sh\nif [ "$4" = / ]; then echo ro; else echo rw; fi\n'

    def remount() -> None:
        (tmp_path / "bin/findmnt").write_text(only_root)

    ((one,), none) = rounds_of(plan, tmp_path, remount, lambda: None)
    assert one.evidence == "the file system of / became read-only during the round" and none == []


def test_data_may_fill_and_what_a_host_does_not_tell_is_no_finding(load: Load, tmp_path: Path, tell: Tell) -> None:
    data = tmp_path / "data"
    data.mkdir()
    folders = f"ONE['data_dir_host'] = {str(data)!r}\nONE['data_dir_container'] = '/data'\n"
    plan = prepare(load(f"{TEST}{folders}"), "run20261121191924").plan
    ((*found,),) = rounds_of(plan, tmp_path, lambda: tell(space=0))
    assert [each.severity for each in found] == ["fault"], "one device, which ranks write to, too"
    own = (FileSystem("/dev/y", ""), FileSystem("/dev/y", FULL))
    (only_read,) = storage_findings("n1", {"/data": own[0]}, {"/data": own[1]}, ["/data"])
    assert (only_read.severity, only_read.drained_hosts) == ("warning", ())

    def nonsense() -> None:
        tell()
        (tmp_path / "bin" / "df").write_text(f"#!/bin/sh\necho x\necho x {'9' * 5000} 1 0 {'9' * 5000}\n")

    assert rounds_of(plan, tmp_path, nonsense) == [[]]


@pytest.mark.parametrize("device", ["server:/export", "//server/share", "[fe80::1]:/export"])
def test_a_shared_file_system_drains_none_of_those_that_mount_it(
    plan: Plan, tmp_path: Path, tell: Tell, device: str
) -> None:
    tell(device=device)
    ((one,),) = rounds_of(plan, tmp_path, lambda: tell(space=0, device=device))
    assert (one.severity, one.drained_hosts) == ("fault", ())


@pytest.mark.parametrize("command", ["sh -c", "df"])
def test_a_dead_mount_hides_neither_other_runs_nor_other_file_systems(
    plan: Plan, tmp_path: Path, tell: Tell, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The look at its folder is not killed by any signal, or what asks for its space is killed for its time."""
    dead, waiting, timeout = tmp_path / "dead", tmp_path / "waiting", tmp_path / "bin/timeout"
    claims = tmp_path / ".clusterdyno/ports"
    for folder in (dead, claims):
        folder.mkdir(parents=True)
    (claims / f"{os.uname().nodename}-29501").write_text("run19990101000000-abc")
    monkeypatch.setenv("HOME", str(tmp_path))
    hangs = "exit 137" if command == "df" else f"echo $$ >{waiting}; exec sleep 600"
    others = """'{print} $2 == "answered" && ++count == 2 {exit}'"""
    timeout.write_text(
        f'#!/bin/sh\ncase $* in "15 cat") exec awk {others} ;; "-s KILL 5 {command} "*dead) {hangs} ;; esac\n'
        'shift 3; exec "$@"\n'
    )
    timeout.chmod(0o755)
    try:
        found = look(LocalHost("localhost"), plan, ProcessRuntime(), 0, ["/", str(dead), "/tmp"])
    finally:
        if waiting.exists():
            os.kill(int(waiting.read_text()), signal.SIGKILL)
    assert found.begun == ("run run19990101000000-abc claimed master port 29501",)
    assert found.stored == {folder: FileSystem("/dev/x", "") for folder in ("/", "/tmp")}
    assert (found.unstored, found.late) == ((f"file system of {dead}: no answer",), "")


def test_hosts_on_which_something_may_still_run_are_not_asked_again(plan: Plan, tmp_path: Path, tell: Tell) -> None:
    assert rounds_of(plan, tmp_path, lambda: tell(space=0), left=["localhost"]) == [[]]


def test_a_later_collection_keeps_the_findings_on_file_systems(plan: Plan, tmp_path: Path, tell: Tell) -> None:
    (found,) = rounds_of(plan, tmp_path, lambda: tell(space=0))
    others = found[0].model_copy(update={"kind": "constant"})
    assert stored_findings(a_round([]).model_copy(update={"findings": [*found, others]})) == found


def test_a_run_whose_round_leaves_a_file_system_read_only_is_degraded_and_says_so(
    tmp_path: Path, root: Path, tell: Tell
) -> None:
    run = Run(tmp_path / "run", LIGHT_ONE, root)
    begun = f'[ -n "$(find {run.folder} -name rank0.out.log 2>/dev/null)" ]'
    (tmp_path / "bin" / "findmnt").write_text(f"#!/bin/sh\nif {begun}; then echo ro; else echo rw; fi\n")
    answer = subprocess.run(run.argv, cwd=root, capture_output=True, text=True, timeout=200, check=False)
    assert run.result is not None, answer.stderr
    record = json.loads((run.result / "ONE/round1/round.json").read_text())
    assert record["verdict"] == "degraded" and "became read-only during the round" in record["reason"], answer.stdout
    assert [each["host"] for each in json.loads((run.result / "run.json").read_text())["drain"]] == ["localhost"]
