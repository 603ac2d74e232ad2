"""Which hosts take part: --hosts, --exclude, and the `hosts` of a case."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from run_benchmarks.commands import starting
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.errors import InputProblems
from run_benchmarks.session.preparation import PreparedRun, prepare
from run_benchmarks.session.session import Session
from run_benchmarks.settings.host_selection import HostSelection, select_hosts, selected
from run_benchmarks.settings.settings import load_settings
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import Journal, recorded_hosts
from tests.run_benchmarks.conftest import Load

RUN = "run20261121191924"
FOUR = 'HOSTS = ["a", "b", "c", "d"]\n'


def cases_conf(**cases: dict[str, Any]) -> str:
    base = {"model": "network", "framework": "pytorch", "config": "config_CPUx2x2", "nproc": 2}
    lines = ['VENDOR = "cpu"', 'RUNTIME = "process"', f"CASES = {list(cases)!r}"]
    return "\n".join([*lines, *(f"{name} = {base | case!r}" for name, case in cases.items())]) + "\n"


def mistakes(load: Load, test: str, **options: str) -> dict[str, str]:
    with pytest.raises(InputProblems) as caught:
        prepare(select_hosts(load(test, FOUR), HostSelection(**options)), RUN)
    return {f"{problem.key} {problem.value}": problem.allowed for problem in caught.value.problems}


def hosts_of(prepared: PreparedRun) -> dict[str, list[str]]:
    """By case the hosts of its nodes, which all its workloads must agree on."""
    for case in prepared.plan.cases:
        for round_ in case.rounds:
            assert tuple(node.host for node in round_.nodes) == case.hosts
            argv = [node.workload.argv for node in round_.nodes]
            masters = {words[words.index("--master_addr") + 1] for words in argv}
            assert masters == {case.hosts[0] if case.nnodes > 1 else "127.0.0.1"} and round_.master == case.hosts[0]
    return {case.name: list(case.hosts) for case in prepared.plan.cases}


def test_a_case_runs_on_the_hosts_it_names_in_that_order(load: Load) -> None:
    text = cases_conf(
        ALL={"hosts": ["d", "b"]},
        FIRST={"hosts": ["c", "a", "b"], "nnodes": 2},
        ONE={"hosts": ["c"], "config": "config_CPUx1x2"},
        ANY={"nnodes": 2},
    )
    prepared = prepare(load(text, FOUR), RUN)
    assert hosts_of(prepared) == {"ALL": ["d", "b"], "FIRST": ["c", "a"], "ONE": ["c"], "ANY": ["a", "b"]}
    assert prepared.plan.hosts == ("a", "b", "c", "d") and prepared.resolved.warnings == ()


def test_hosts_that_no_case_is_for_are_left_alone(load: Load) -> None:
    prepared = prepare(load(cases_conf(PAIR={"hosts": ["d", "b"]}), FOUR), RUN)
    assert prepared.plan.hosts == prepared.settings.cluster.HOSTS == ("b", "d")
    assert prepared.resolved.warnings == ("no case runs on a, c: not touched, since every case names its hosts",)


def test_what_is_left_of_a_case_s_hosts(load: Load) -> None:
    text = cases_conf(PAIR={"hosts": ["d", "b", "a"], "nnodes": 2}, BOTH={"hosts": ["a", "d"]}, ANY={"nnodes": 1})
    prepared = prepare(load(text, FOUR), RUN)
    left = prepared.plan_for(("a", "b", "c"))
    assert {case.name: case.hosts for case in left.cases} == {"PAIR": ("b", "a"), "ANY": ("a",)}


def test_mistakes_in_the_hosts_of_a_case_are_named(load: Load) -> None:
    found = mistakes(load, cases_conf(ONE={"hosts": ["a", "bb"], "nnodes": 3}))
    assert "a host that takes part" in found["ONE.hosts bb"] and "known: a, b, c, d" in found["ONE.hosts bb"]
    assert found["ONE.nnodes 3"] == "at most 2, the number of its hosts"
    with pytest.raises(InputProblems, match=r"ONE\.hosts = .*each host once, but a stands there more than once"):
        load(cases_conf(ONE={"hosts": ["a", "b", "a"]}), FOUR)
    with pytest.raises(InputProblems, match=r"ONE\.hosts = \[\]: "):
        load(cases_conf(ONE={"hosts": []}), FOUR)
    with pytest.raises(InputProblems, match=r"ONE\.hosts = 'a'"):
        load(cases_conf(ONE={"hosts": "a"}), FOUR)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, ("a", "b", "c", "d")),
        ({"hosts": "c, a"}, ("c", "a")),
        ({"exclude": "a"}, ("b", "c", "d")),
        ({"hosts": "d,c,b", "exclude": "c"}, ("d", "b")),
    ],
)
def test_the_command_line_narrows_hosts(options: dict[str, str], expected: tuple[str, ...], load: Load) -> None:
    settings = select_hosts(load(cases_conf(ANY={"nnodes": 2}), FOUR), HostSelection(**options))
    assert expected == settings.cluster.HOSTS
    assert hosts_of(prepare(settings, RUN)) == {"ANY": list(expected[:2])}
    assert selected(load(cases_conf(ANY={"nnodes": 2}), FOUR), list(expected)) == settings


def test_mistakes_on_the_command_line_are_named(load: Load) -> None:
    text = cases_conf(ANY={"nnodes": 2})
    assert "a name of HOSTS" in mistakes(load, text, hosts="a,e")["--hosts e"]
    assert "known: a, b, c, d" in mistakes(load, text, exclude="x")["--exclude x"]
    assert "a stands there more than once" in mistakes(load, text, hosts="a,b,a")["--hosts a,b,a"]
    assert "has to be left" in mistakes(load, text, exclude="a,b,c,d")["--exclude a,b,c,d"]
    assert "number of HOSTS" in mistakes(load, text, hosts="c")["ANY.nnodes 2"]
    named = mistakes(load, cases_conf(PAIR={"hosts": ["a", "b"]}), exclude="b")
    assert "a host that takes part" in named["PAIR.hosts b"]


def test_a_resume_takes_the_hosts_of_the_start(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = cases_conf(ANY={"nnodes": 2}) + f'FLAGPERF_LOG_PATH_HOST = "{tmp_path}/result"\n'
    taken: list[tuple[PreparedRun, Path]] = []

    def control(prepared: PreparedRun, folder: Path, **_: Any) -> int:
        taken.append((prepared, folder))
        return 0

    monkeypatch.setattr(starting, "_control", control)
    assert starting.start(select_hosts(load(text, FOUR), HostSelection(exclude="a")))[0] == 0
    ((prepared, folder),) = taken
    Journal(folder).append(Session(prepared, folder, Interruption("clean"), [])._started())
    assert recorded_hosts(folder) == ["b", "c", "d"] and recorded_hosts(tmp_path) is None
    assert starting.resume(load(text, FOUR), folder, detach=False) == 0
    assert taken[1][0].plan == prepared.plan and prepared.plan.hosts == ("b", "c", "d")
    with pytest.raises(InputProblems, match="a name of HOSTS"):
        starting.resume(load(text, 'HOSTS = ["a", "c", "d"]\n'), folder, detach=False)


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    files = ["--cluster-conf", str(folder / "cluster_conf.py"), "--test-conf", str(folder / "test_conf.py")]
    argv = [sys.executable, str(ROOT / "run_benchmarks" / "run.py"), *files, *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=200)


def test_the_options_stand_before_or_after_the_command(load: Load, tmp_path: Path) -> None:
    load(cases_conf(ANY={"nnodes": 2}), FOUR)
    assert load_settings(tmp_path / "cluster_conf.py", tmp_path / "test_conf.py").cluster.HOSTS == ("a", "b", "c", "d")
    for words in (("plan", "--hosts", "c,d"), ("--exclude", "a,b", "plan")):
        answer = call(tmp_path, *words)
        assert answer.returncode == 0 and '"c",\n    "d"\n  ]' in answer.stdout and '"a"' not in answer.stdout, answer
    assert call(tmp_path, "plan", "--hosts", "e").returncode == 2
    refused = call(tmp_path, "--hosts", "a", "status")
    assert refused.returncode == 2 and "status: unrecognized arguments: --hosts" in refused.stderr
