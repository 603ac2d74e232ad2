"""The command line of an acceptance: what it refuses before anything runs."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.errors import ABSENT
from run_benchmarks.acceptance import rungs
from run_benchmarks.acceptance.climb import EndedError, Looked, NoNodesError
from run_benchmarks.acceptance.records import AcceptRecord
from run_benchmarks.acceptance.rungs import RUNGS, choice_of
from run_benchmarks.commands import accepting, starting
from run_benchmarks.commands.accept_options import AcceptOptions, budget_seconds, chosen_rungs, recorded
from run_benchmarks.commands.accepting import Acceptance, accept, plan_all, same_options, save
from run_benchmarks.commands.options import Request, asked_for
from run_benchmarks.errors import InputProblems
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.slurm import allocation as allocations
from run_benchmarks.hosts.slurm.allocation import Allocation, AllocationError
from run_benchmarks.hosts.slurm.host import SlurmHost
from run_benchmarks.hosts.slurm.jobs import Job
from run_benchmarks.hosts.slurm.nodes import NodeState
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.results.records import record_text
from run_benchmarks.session import allocation
from run_benchmarks.session.preparation import PreparedRun, prepare
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_USAGE
from tests.run_benchmarks.acceptance.scripted_cluster import reason
from tests.run_benchmarks.acceptance.simulated_cluster import DEVICES, SLOW_GPU, Bad, SimulatedCluster
from tests.run_benchmarks.acceptance.test_accept_record import sample
from training.benchmarks.tools.table import TOOLS
from vendors import available, load

HEALTH = AcceptOptions(rungs="health", budget="1m", nproc=1)


def test_a_budget_has_a_unit_and_rungs_keep_their_order() -> None:
    assert [budget_seconds(text) for text in ("90s", "1.5m", "2h")] == [90, 90, 7200]
    assert chosen_rungs("whole, health") == ["health", "whole"]


@pytest.mark.parametrize("text", ["", "30", "0m", "fast", "-5m", "1d", "9" * 400 + "h", "9" * 306 + "h"])
def test_a_budget_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(InputProblems, match="a time such as 90s, 30m or 2h"):
        budget_seconds(text)


def test_every_unknown_rung_is_named() -> None:
    with pytest.raises(InputProblems) as caught:
        chosen_rungs("health,disk,moon")
    assert "disk" in str(caught.value) and "moon" in str(caught.value)


def test_all_that_is_wrong_of_the_command_line_and_the_files_is_told_at_once(tmp_path: Path) -> None:
    on_cpu = next(each for each in available() if load(each).device_type == "cpu" and load(each).monitor_name)
    files = asked_of(tmp_path, on_cpu, 1)
    (tmp_path / "cluster_conf.py").write_text("LAUNCHER = 'slurm'\nHOSTS = 3\n")
    (tmp_path / "test_conf.py").write_text(f"VENDOR = {on_cpu!r}\nRUNTIME = 'slurm'\n")
    asked = files._replace(changes=asked_for(Namespace(case=["BERT*"], repeat=3)).changes)
    wrong = AcceptOptions(
        rungs="moon", budget="fast", nproc=0, against=tmp_path / "no", force=True, detach=True, save_expected=tmp_path
    )
    with pytest.raises(InputProblems) as caught:
        accept(asked, wrong)
    told = ("--detach", "--case", "--repeat", "--rungs", "--budget", "--nproc", "--against", "--save-expected")
    assert [each for each in (*told, "VENDOR", "HOSTS") if each not in str(caught.value)] == []
    assert str(caught.value).count("--case") == 1, "it is not asked for another one"
    assert {path.name for path in tmp_path.iterdir()} == {"cluster_conf.py", "test_conf.py"}


@pytest.mark.parametrize(
    ("rungs", "name"), [("network", "F"), ("single", "no/such/F"), ("single", "."), ("single", "there")]
)
def test_expected_values_are_refused_where_none_could_be_kept(tmp_path: Path, rungs: str, name: str) -> None:
    (tmp_path / "there").touch()
    with pytest.raises(InputProblems, match="--save-expected"):
        accept(asked_for(Namespace()), AcceptOptions(rungs=rungs, budget="1m", nproc=1, save_expected=tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_expected_values_of_a_good_cluster_are_what_against_takes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    level = sample().usual["H100"]["memory"]
    many = {kind: dict.fromkeys(("memory", "peers", "peers 0 to 1"), level) for kind in ("H100", "A100")}
    save(sample(usual=many), tmp_path / "F")
    assert "what is expected in 2 tests, learned from 2 hosts" in capsys.readouterr().out
    save(sample(), tmp_path / "F")
    assert recorded(tmp_path / "F").usual == sample().usual
    save(sample(usual={}), tmp_path / "none")
    save(sample(hosts={"n0": "out"}), tmp_path / "none")
    capsys.readouterr()
    slow = sample().rungs[1].model_copy(update={"rung": "single", "reasons": ["32 of 32 devices are slow"]})
    save(sample(rungs=[slow]), tmp_path / "none", slow.reasons)
    assert "is not written: single says: 32 of 32 devices are slow" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
    late = slow.model_copy(update={"reasons": ["not looked at on n7: kernel log"]})
    save(sample(rungs=[late]), tmp_path / "late")
    assert recorded(tmp_path / "late").usual == sample().usual, "it is of one host alone"


def asked_of(tmp_path: Path, vendor: str, hosts: int) -> Request:
    """The files of a cluster of so many hosts of a vendor."""
    (tmp_path / "cluster_conf.py").write_text(f"HOSTS = {[f'n{n}' for n in range(hosts)]!r}\n")
    mine = {"model": "base", "framework": "pytorch", "config": choice_of(vendor).device_config, "nnodes": 1, "nproc": 1}
    text = f"VENDOR = {vendor!r}\nRUNTIME = 'process'\nCASES = ['MINE']\nMINE = {mine!r}\n"
    (tmp_path / "test_conf.py").write_text(text)
    return asked_for(Namespace(cluster_conf=tmp_path / "cluster_conf.py", test_conf=tmp_path / "test_conf.py"))


@pytest.mark.parametrize(
    ("vendor", "hosts", "nproc"), [("cpu", 200, 2), ("nvidia", 20, 8), *((vendor, 3, 2) for vendor in available())]
)
def test_the_cases_of_every_rung_can_be_planned_for_each_vendor(
    vendor: str, hosts: int, nproc: int, tmp_path: Path
) -> None:
    asked = asked_of(tmp_path, vendor, hosts)
    is_on_cpu = load(vendor).device_type == "cpu" and vendor != "cpu"  # a training of billions would take days
    refused = pytest.raises(
        InputProblems, match=f"VENDOR = '{vendor}': .* accept is not for this one, whose ranks compute"
    )
    with refused if is_on_cpu else contextlib.nullcontext():
        plan_all(asked, asked.settings(), RUNGS, nproc)


def test_what_is_wrong_of_the_command_is_told_before_hosts_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "ranks_of_a_host", lambda *_: pytest.fail("hosts are asked"))
    on_cpu = next(each for each in available() if load(each).device_type == "cpu" and load(each).monitor_name)
    with pytest.raises(InputProblems, match="accept is not for this one"):
        accept(asked_of(tmp_path, on_cpu, 1), AcceptOptions(rungs="health", budget="1m"))
    for text in ("no record", record_text(sample())):
        (tmp_path / "accept.json").write_text(text)
        with pytest.raises(InputProblems, match="--against"):
            accept(
                asked_of(tmp_path, "amd", 1),
                AcceptOptions(rungs="health", budget="1m", against=tmp_path / "accept.json"),
            )


def test_hosts_that_slurm_chooses_anew_for_each_run_are_refused(tmp_path: Path) -> None:
    asked = asked_of(tmp_path, "cpu", 3)
    (tmp_path / "cluster_conf.py").write_text("LAUNCHER = 'slurm'\nHOSTS = 3\n")
    (tmp_path / "test_conf.py").write_text("VENDOR = 'cpu'\nRUNTIME = 'slurm'\n")
    with pytest.raises(InputProblems, match=r"HOSTS = 3: .*inside salloc with its hostlist"):
        accept(asked, HEALTH)


def test_a_node_that_slurm_has_out_of_service_is_taken_out_and_the_others_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = [NodeState(name=name, state="down*" if name == "n1" else "idle", reason="") for name in ("n0", "n1", "n2")]
    monkeypatch.setattr(allocation, "states_of", lambda hosts: [each for each in states if each.name in hosts])
    monkeypatch.setattr(accepting, "allocated", lambda planned, **_: contextlib.nullcontext(planned))
    monkeypatch.setattr(
        accepting,
        "connected",
        lambda cluster, _: contextlib.nullcontext({name: LocalHost(name) for name in cluster.HOSTS}),
    )
    asked = asked_of(tmp_path, "cpu", 3)
    (tmp_path / "cluster_conf.py").write_text("LAUNCHER = 'slurm'\nHOSTS = ['n0', 'n1', 'n2']\n")
    changes = asked.changes.model_copy(update={"sets": ("RUNTIME=slurm",)})
    asked = asked._replace(changes=changes)
    seen: list[str] = []

    def looked(reached: Sequence[str], reports: Mapping[str, HostReport], _: object, data: object, __: object) -> None:
        seen.extend(reached)
        assert data == ["/data/of/mine"], "of the user's own cases, which are not planned"
        reports["n2"].add("kernel log", "no permission", "an answer", "give it", "blind")
        reports["n0"].add("clock", "no tool", "an answer", "install one", "not seen")

    monkeypatch.setattr(accepting, "data_paths", lambda _: [("/data/of/mine", "/data")])
    monkeypatch.setattr(accepting, "examine_health", looked)
    found = Acceptance(asked, asked.settings(), tmp_path, 1).gate(["n0", "n1", "n2"])
    assert seen == ["n0", "n2"] and found.sick == {"n1": ["Slurm: n1 is down*: look why with sinfo -R"]}
    assert found.unasked == {"n0": [], "n2": ["kernel log: no permission"]}, "one tool that n0 lacks is another matter"
    states[1] = NodeState(name="n1", state="drained", reason="clusterdyno accept1: device 3: slow")
    (said,) = Acceptance(asked, asked.settings(), tmp_path, 1).gate(["n0", "n1", "n2"]).sick["n1"]
    resume = "scontrol update nodename=n1 state=resume"
    assert said.endswith(f"slow): run.py drained it, after its repair {resume}, then test it again")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert Acceptance(asked, asked.settings(), tmp_path, 1).gate(["n1", "n0", "n2"]).sick == {}, "they are ours"


def test_a_host_whose_clock_could_not_be_looked_at_is_not_silently_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def looked(reached: Sequence[str], reports: Mapping[str, HostReport], *_: object) -> None:
        reports["localhost"].add("clock synchronisation", "no tool", "an answer", "install one", "not seen")

    monkeypatch.setattr(accepting, "check_hosts", lambda reached, *_: {name: HostReport(host=name) for name in reached})
    monkeypatch.setattr(accepting, "examine_health", looked)
    code, record = accept(on_localhost(tmp_path, tmp_path / "results"), HEALTH)
    assert record and code == EXIT_PASS and record.hosts == {"localhost": "accepted"}
    assert record.missed == {"localhost": ["clock synchronisation"]}
    assert "localhost: accepted, but not looked at: clock synchronisation\n" in capsys.readouterr().out


def test_nodes_that_slurm_takes_out_of_service_while_a_job_waits_are_taken_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drained: list[str] = []
    asked_for_jobs: list[list[str]] = []
    waited: list[float] = []
    clock = [0.0]

    def states_of(hosts: Sequence[str]) -> list[NodeState]:
        of = {name: "drained" if name in drained else "idle" for name in hosts}
        return [NodeState(name=name, state=state, reason="disk", by="alice") for name, state in of.items()]

    @contextlib.contextmanager
    def allocated(planned: PreparedRun, queue_seconds: float) -> Iterator[PreparedRun]:
        asked_for_jobs.append(list(planned.settings.cluster.HOSTS))
        waited.append(queue_seconds)
        clock[0] += 60.0
        if len(drained) < 2:
            drained.append(f"n{len(drained) + 1}")
            raise AllocationError(f"nodes of HOSTS are out of service: {drained[-1]}")
        yield planned

    monkeypatch.setattr(allocation, "states_of", states_of)
    monkeypatch.setattr(accepting, "allocated", allocated)
    monkeypatch.setattr(
        accepting,
        "connected",
        lambda cluster, _: contextlib.nullcontext({name: LocalHost(name) for name in cluster.HOSTS}),
    )
    monkeypatch.setattr(accepting, "examine_health", lambda *_: None)
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    asked = asked_of(tmp_path, "cpu", 3)
    (tmp_path / "cluster_conf.py").write_text(
        "LAUNCHER = 'slurm'\nHOSTS = ['n0', 'n1', 'n2']\nSLURM_QUEUE_LIMIT = 100\n"
    )
    asked = asked._replace(changes=asked.changes.model_copy(update={"sets": ("RUNTIME=slurm",)}))
    acceptance = Acceptance(asked, asked.settings(), tmp_path, 1)
    found = acceptance.gate(["n0", "n1", "n2"])
    assert found.sick == {
        name: [f"Slurm: {name} is drained (disk; by alice): look why with sinfo -R"] for name in ("n1", "n2")
    }
    assert asked_for_jobs == [["n0", "n1", "n2"], ["n0", "n2"], ["n0"]]
    assert waited == [100.0, 40.0, 0.0], "SLURM_QUEUE_LIMIT altogether"
    drained.clear()
    monkeypatch.setattr(accepting, "out_of_service", lambda *_: {})
    with pytest.raises(AllocationError):
        acceptance.gate(["n0", "n1"])
    # A run that Slurm gives no nodes has a folder, and no record.
    monkeypatch.setattr(starting, "start", lambda settings: (EXIT_CHECK, tmp_path / "run7"))
    with pytest.raises(NoNodesError, match="run7 got no nodes of Slurm"):
        acceptance.run("single1", rungs.stages_of("single", "cpu", ["n0"], 1)[0], ["n0"], 9)


@pytest.mark.parametrize(("state", "is_host_s"), [("PREEMPTED", False), ("CANCELLED", False), ("NODE_FAIL", True)])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_job_that_somebody_ends_during_a_look_accuses_no_host(
    is_before: bool, state: str, is_host_s: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Allocation(number="7", is_ours=True)
    monkeypatch.setattr(held, "job", lambda: Job(id="7", state=state, hosts=("n0",)))
    host = SlurmHost("n0", held)
    monkeypatch.setattr(host, "reconnect", lambda: host._check_job(None))

    def reached(*_: object) -> Any:
        return contextlib.nullcontext((replace(planned, allocation=held), {"n0": host}, {}))

    asked = asked_of(tmp_path, "cpu", 1)
    acceptance = Acceptance(asked, asked.settings(), tmp_path, 1)
    planned = acceptance.look(["n0"])
    monkeypatch.setattr(acceptance, "reached", reached)
    monkeypatch.setattr(allocations, "states_of", lambda hosts: [])
    look = acceptance.examine if is_before else acceptance.gate
    if is_host_s:
        assert "NODE_FAIL" in look(["n0"]).sick["n0"][0]
    else:
        with pytest.raises(AllocationError, match=rf"^Slurm's job 7 is over: .* \({state}\) on n0$"):
            look(["n0"])


def test_sigterm_while_devices_are_counted_gives_back_what_was_allocated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = []

    def counted(*_: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            ended.append("given back")
        return 1

    monkeypatch.setattr(accepting, "ranks_of_a_host", counted)
    before = signal.getsignal(signal.SIGTERM)
    assert before is signal.SIG_DFL
    with pytest.raises(KeyboardInterrupt):
        accept(asked_of(tmp_path, "cpu", 1), AcceptOptions(rungs="health", budget="1m"))
    assert ended == ["given back"] and signal.getsignal(signal.SIGTERM) is before


def test_hosts_without_devices_have_a_number_of_ranks_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = asked_of(tmp_path, "nvidia", 1)
    monkeypatch.setattr(accepting, "usual_devices", lambda hosts, patterns: None)
    assert accepting.ranks_of_a_host(asked, asked.settings()) == 2
    assert "no host has or tells devices: 2 ranks of each" in capsys.readouterr().out


def test_repaired_hosts_are_accepted_alone_though_the_users_case_needs_more_hosts(tmp_path: Path) -> None:
    asked_of(tmp_path, "cpu", 8)
    text = (tmp_path / "test_conf.py").read_text()
    (tmp_path / "test_conf.py").write_text(text.replace("'nnodes': 1", "'nnodes': 8"))
    files = {"cluster_conf": tmp_path / "cluster_conf.py", "test_conf": tmp_path / "test_conf.py"}
    asked = asked_for(Namespace(**files, hosts="n1,n0,n3"))
    with pytest.raises(InputProblems, match="at most 3, the number of HOSTS"):
        prepare(asked.settings(), "run1")
    plan_all(asked, asked.settings(), RUNGS, 1)


def test_a_repaired_host_is_tested_with_the_files_settings_and_rungs_of_the_acceptance(tmp_path: Path) -> None:
    file = tmp_path / "test_conf.py"
    asked = asked_for(Namespace(test_conf=file, set=["VENDOR=cpu", "RUNTIME=process"]))
    options = ["--test-conf", str(file.resolve()), "--set", "VENDOR=cpu", "--set", "RUNTIME=process"]
    assert same_options(asked, RUNGS) == options
    assert same_options(asked, ["network"]) == [*options, "--rungs", "network"]


def test_what_the_last_rung_lacks_is_told_before_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = replace(choice_of("cpu"), training=("llama", "config_of_no_vendor"))
    monkeypatch.setattr(rungs, "choice_of", lambda vendor: chosen)
    asked = asked_of(tmp_path, "cpu", 3)
    with pytest.raises(InputProblems, match="config_of_no_vendor"):
        accept(asked, AcceptOptions(rungs="health,whole", budget="1m", nproc=2))
    assert not list(tmp_path.rglob("accept*"))


def test_a_test_conf_without_cases_of_its_own_is_enough_for_an_acceptance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = replace(choice_of("cpu"), training=("llama", "config_of_no_vendor"))
    monkeypatch.setattr(rungs, "choice_of", lambda vendor: chosen)
    asked = asked_of(tmp_path, "cpu", 3)
    (tmp_path / "test_conf.py").write_text("VENDOR = 'cpu'\nRUNTIME = 'process'\n")
    with pytest.raises(InputProblems) as caught:
        asked.settings()
    assert [(each.key, each.value) for each in caught.value.problems] == [("CASES", ABSENT)]
    # The first mistake that is left is of the last rung: the files were read, and the rungs before it are planned.
    with pytest.raises(InputProblems) as caught:
        accept(asked, AcceptOptions(rungs="single,whole", budget="1m", nproc=2))
    assert {str(each.value) for each in caught.value.problems} == {"config_of_no_vendor"}


def test_tools_of_others_are_looked_for_once_before_the_first_rung(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_of(tmp_path, "cpu", 1)
    (tmp_path / "cluster_conf.py").write_text("HOSTS = ['localhost']\n")
    (tmp_path / "ib_write_bw").write_text("#!/bin/sh\n")
    (tmp_path / "ib_write_bw").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    files = {"cluster_conf": tmp_path / "cluster_conf.py", "test_conf": tmp_path / "test_conf.py"}
    asked = asked_for(Namespace(**files))
    acceptance = Acceptance(asked, asked.settings(), tmp_path, 1)
    planned = acceptance.tools(RUNGS, ["localhost"], is_planned=True)["single"]
    assert planned.names == ["ib_write_bw_loopback", "ib_write_lat_loopback"] and not planned.missing
    found = acceptance.tools(RUNGS, ["localhost"])
    assert found.keys() == {"single"}, "the network needs two hosts"
    assert found["single"].names == ["ib_write_bw_loopback"] and found["single"].seconds == planned.seconds / 2
    assert found["single"].missing == ["ib_write_lat is not installed on any host"]
    monkeypatch.setattr(acceptance, "_in_containers", True)
    inside = acceptance.tools(RUNGS, ["localhost"])["single"]
    assert inside.names == planned.names and inside.seconds == 0, "what no image is known to have shrinks no rung"


@pytest.mark.parametrize(
    ("vendor", "installed"),
    [
        ("nvidia", {"health": ["dcgmi"], "single": ["dcgmi", "nvbandwidth"]}),
        ("amd", {"health": [], "single": ["rvs", "TransferBench"]}),
        ("ascend", {"health": ["ascend-dmi"], "single": []}),
        ("gaudi", {"health": ["hl_qual"], "single": ["hl_qual"]}),
        ("metax", {"single": []}),
    ],
)
def test_every_tool_that_a_host_has_is_reached(
    vendor: str, installed: dict[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_of(tmp_path, vendor, 1)
    (tmp_path / "cluster_conf.py").write_text("HOSTS = ['localhost']\n")
    for program in {tool.command[0] for tool in TOOLS.values()}:
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = asked_for(Namespace(cluster_conf=tmp_path / "cluster_conf.py", test_conf=tmp_path / "test_conf.py"))
    found = Acceptance(asked, asked.settings(), tmp_path, 1).tools(RUNGS, ["localhost"], 3600.0)
    loopbacks = ["ib_write_bw_loopback", "ib_write_lat_loopback"]
    wanted = {**installed, "single": [*installed["single"], *loopbacks]}
    assert {rung: [*others.names] for rung, others in found.items()} == wanted


def on_localhost(tmp_path: Path, results: Path) -> Request:
    """The files of a cluster of this machine alone, whose results go to a folder."""
    asked = asked_of(tmp_path, "cpu", 1)
    (tmp_path / "cluster_conf.py").write_text("HOSTS = ['localhost']\n")
    conf = tmp_path / "test_conf.py"
    conf.write_text(f"{conf.read_text()}FLAGPERF_LOG_PATH_HOST = {str(results)!r}\n")
    return asked


def only_record(results: Path) -> AcceptRecord:
    (file,) = results.glob("accept*/accept.json")
    return AcceptRecord.model_validate_json(file.read_text())


def test_a_record_that_is_read_while_a_later_rung_runs_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that is killed leaves it for ever."""
    seen: list[AcceptRecord] = []

    def run(self: Acceptance, *_: object) -> None:
        seen.append(only_record(tmp_path / "results"))
        raise EndedError("killed")

    monkeypatch.setattr(Acceptance, "examine", lambda self, hosts: Looked())
    monkeypatch.setattr(Acceptance, "run", run)
    assert accept(on_localhost(tmp_path, tmp_path / "results"), replace(HEALTH, rungs="health,single"))[0]
    (record,) = seen
    assert [rung.verdict for rung in record.rungs] == ["pass"]
    assert not record.ready and record.hosts == {"localhost": "not tested"}


def test_results_that_go_to_a_link_without_target_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "results").symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr("run_benchmarks.commands.accepting.time.sleep", lambda seconds: pytest.fail("waits for ever"))
    asked = on_localhost(tmp_path, tmp_path / "results")
    assert accept(asked, HEALTH)[0] == EXIT_USAGE
    assert str(tmp_path / "results") in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_between_runs_keeps_what_there_is(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Acceptance, "examine", lambda self, hosts: os.kill(os.getpid(), number))
    asked = on_localhost(tmp_path, tmp_path / "results")
    before = signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    try:
        assert accept(asked, replace(HEALTH, rungs="health,whole"))[0] == EXIT_INTERRUPTED
    finally:
        signal.signal(number, before)
    record = only_record(tmp_path / "results")
    assert [(rung.verdict, reason(rung)) for rung in record.rungs] == [
        ("not run", "interrupted"),
        ("not run", "the acceptance ended before it"),
    ]
    assert record.hosts == {"localhost": "not tested"} and not record.ready
    assert "ended early: interrupted" in capsys.readouterr().err


def test_an_interrupted_run_is_named_with_the_rung_that_was_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results"
    asked = on_localhost(tmp_path, results)
    monkeypatch.setattr(starting, "start", lambda settings: (EXIT_INTERRUPTED, results / "run7"))
    assert accept(asked, replace(HEALTH, rungs="single"))[0] == EXIT_INTERRUPTED
    (rung,) = only_record(results).rungs
    assert (rung.verdict, reason(rung)) == ("not run", "run7 was interrupted: what it measured is there, not judged")
    monkeypatch.setattr(starting, "start", lambda settings: (EXIT_FAIL, results / "run8"))
    shutil.rmtree(results)
    assert accept(asked, replace(HEALTH, rungs="single"))[0] == EXIT_FAIL
    assert reason(only_record(results).rungs[0]).startswith("run8 could not be made: ")


def test_a_disk_of_results_that_fills_up_ends_no_measurement_and_hides_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(results)], check=False)
    if done.returncode:
        pytest.skip("no permission to mount a small file system")

    def examined(self: Acceptance, hosts: Sequence[str]) -> Looked:
        with contextlib.suppress(OSError), (results / "full").open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        return Looked(sick={"localhost": ["disk: slow"]})

    monkeypatch.setattr(Acceptance, "examine", examined)
    try:
        code, _ = accept(on_localhost(tmp_path, results), replace(HEALTH, rungs="health,single"))
        assert code == EXIT_FAIL
        said = capsys.readouterr()
        assert "the head node's own disk is full" in said.err
        assert "disk: slow" in said.out and "NOT READY: 0 of 1 host accepted" in said.out
        (folder,) = results.glob("accept*")
        assert not (folder / "accept.json").exists(), "no half a record"
        assert accept(on_localhost(tmp_path, results / "full"), HEALTH)[0] == EXIT_USAGE
    finally:
        subprocess.run(["umount", str(results)], check=True)


def simulated(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    bad: Bad,
    hosts: int = 4,
    rungs: str = ",".join(RUNGS),
    against: Path | None = None,
    save_expected: Path | None = None,
) -> tuple[int, AcceptRecord | None]:
    """An acceptance of modelled hosts by the command."""
    cluster = SimulatedCluster(bad, 1)
    monkeypatch.setattr(Acceptance, "run", lambda self, *asked: cluster.run(*asked))
    monkeypatch.setattr(Acceptance, "examine", lambda self, hosts: Looked())
    monkeypatch.setattr(Acceptance, "gate", lambda self, hosts: Looked())
    monkeypatch.setattr(Acceptance, "_asked", lambda *_: (None, []))
    asked = asked_of(tmp_path, "nvidia", hosts)
    conf = tmp_path / "test_conf.py"
    conf.write_text(f"{conf.read_text()}FLAGPERF_LOG_PATH_HOST = {str(tmp_path / 'results')!r}\n")
    return accept(
        asked, AcceptOptions(rungs=rungs, budget="9h", nproc=DEVICES, against=against, save_expected=save_expected)
    )


def test_a_healthy_cluster_passes_with_every_host_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, record = simulated(tmp_path, monkeypatch, Bad())
    assert record and code == EXIT_PASS and record.ready
    assert [(rung.rung, rung.verdict) for rung in record.rungs] == [(rung, "pass") for rung in RUNGS]
    assert set(record.hosts.values()) == {"accepted"} and record.drain == {}


def test_devices_are_held_to_the_values_that_an_acceptance_before_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "F"
    assert simulated(tmp_path, monkeypatch, Bad(), save_expected=file)[0] == EXIT_PASS
    assert recorded(file).usual[""]["memory"].devices == 4 * DEVICES
    code, record = simulated(tmp_path, monkeypatch, Bad(slow_gpus={"n2": SLOW_GPU}), against=file)
    assert record and code == EXIT_FAIL and record.against == str(file)
    assert [rung.not_run for rung in record.rungs[2:]] == [
        [
            "--against: not compared: ACCEPT_ALL_REDUCE: the case differs: hosts 3, then 4",
            "--against: not compared: ACCEPT_ALL_TO_ALL: the case differs: hosts 3, then 4",
        ],
        [f"--against: not compared: ACCEPT_{case}: the case differs: hosts 3, then 4" for case in ("TRAINING", "SOAK")],
    ]
    assert list(record.drain) == ["n2"] and f" % below {4 * DEVICES} accepted ones" in record.drain["n2"][0]


def test_network_and_training_are_held_to_what_an_acceptance_before_saved_and_a_file_without_them_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "F"
    assert simulated(tmp_path, monkeypatch, Bad(), save_expected=file)[0] == EXIT_PASS
    slow = Bad(switches=0.8, training=0.8)
    code, record = simulated(tmp_path, monkeypatch, slow, against=file)
    assert record and code == EXIT_FAIL and record.drain == {}
    assert [rung.verdict for rung in record.rungs] == ["pass", "pass", "fail", "fail"]
    old = recorded(file).model_dump(mode="json", exclude={"cases"})
    file.write_text(json.dumps(old | {"schema_version": 8}))
    code, record = simulated(tmp_path, monkeypatch, slow, against=file)
    assert record and code == EXIT_PASS
    assert [said for rung in record.rungs[2:] for said in rung.not_run] == [
        f"--against: not compared: it has nothing of {case}"
        for case in ("ACCEPT_PAIRS", "ACCEPT_ALL_REDUCE", "ACCEPT_ALL_TO_ALL", "ACCEPT_TRAINING", "ACCEPT_SOAK")
    ]


def test_one_host_has_no_network_and_is_ready_where_that_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, record = simulated(tmp_path, monkeypatch, Bad(), hosts=1)
    said = capsys.readouterr().out
    assert record and code == EXIT_FAIL and record.hosts == {"n0": "not tested"}
    assert "NOT READY, AS NOT EVERY RUNG WAS RUN: 0 of 1 host accepted" in said
    assert record.rungs[2].reasons[0].startswith("one host has no network: ")
    code, record = simulated(tmp_path, monkeypatch, Bad(), hosts=1, rungs="health,single,whole")
    assert record and code == EXIT_PASS and record.hosts == {"n0": "accepted"}
    assert "READY BY 3 OF 4 RUNGS: 1 of 1 host accepted" in capsys.readouterr().out
