"""What disturbed a round stands in its record, and beside its verdict; what did not happen does not."""

import json
import os
import pwd
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from protocol.node_record import NodeExit
from run_benchmarks.errors import DeadlineError, LinkLostError
from run_benchmarks.hosts.base import Completed
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.facts import MachineIdentity
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.neighbours import look
from run_benchmarks.plan.plan import Plan
from run_benchmarks.report.html import write_report
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.remarks import Integrity, Remark, in_lines
from run_benchmarks.results.summary import case_rows
from run_benchmarks.rounds.integrity import MAX_REMARKS, Neighbourhood, integrity
from run_benchmarks.rounds.owed import with_recorded
from run_benchmarks.rounds.watch import Watch
from run_benchmarks.runtimes.base import RunningTask
from run_benchmarks.runtimes.process import ProcessRuntime
from run_benchmarks.session.preparation import prepare
from run_benchmarks.state.context import RunContext, RunningNode
from run_benchmarks.state.interruption import Interruption
from tests.monitors.running import Monitor
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.reports import a_report
from tests.run_benchmarks.results.rounds import START_MS, node_plan, round_record, run_record

SECONDS = 20
SEVERAL = 17
DEVICE = {"index": 0, "memory_used_bytes": 8 << 30, "throttle_reasons": ["sw_power_cap"]}


@pytest.fixture
def plan(load: Load) -> Plan:
    return prepare(load(TEST), "run20261121191924").plan


def node(
    folder: Path,
    host: str = "node1",
    *,
    used_cores: float = 1.0,
    own_s: float | None = 20.0,
    more: list[dict[str, Any]] | None = None,
) -> RunningNode:
    """A node that ran from START_MS on for SECONDS, on a host of 4 cores of which `used_cores` were in use."""
    folder = folder / host
    folder.mkdir()
    records = [
        {
            "source": "cpu",
            "t_ms": START_MS + 1000 * tick,
            "monotonic_s": float(tick),
            "values": {"utilization_percent": 25.0, "process_s": 100 + used_cores * tick, "cores": 4},
        }
        for tick in range(-1, SECONDS + 2)
    ]
    lines = [
        json.dumps({"schema": 1, "t_ms": START_MS + 1000 * SECONDS, "monotonic_s": 20.0, **each}) for each in more or ()
    ]
    lines += [json.dumps({"schema": 1, **each}) for each in records]
    (folder / "monitor.jsonl").write_text("\n".join(sorted(lines, key=lambda line: json.loads(line)["t_ms"])) + "\n")
    NodeExit(
        exit_code=0,
        argv=[],
        interface=None,
        torch=None,
        cpu_s=own_s,
        started_ms=START_MS,
        finished_ms=START_MS + 1000 * SECONDS,
    ).write(folder)
    outcome = NodeOutcome(node=node_plan(host, 0, (0,)), folder=folder, exit_code=0)
    return RunningNode(plan=outcome.node, host=LocalHost(host), outcome=outcome)


def found(plan: Plan, *nodes: RunningNode, reports: Mapping[str, HostReport] | None = None) -> Integrity:
    reports = reports if reports is not None else {each.plan.host: a_report(each.plan.host) for each in nodes}
    return integrity(nodes, reports, Neighbourhood(plan, ProcessRuntime()), START_MS)


def test_a_round_that_nobody_disturbed_has_no_remark(plan: Plan, tmp_path: Path) -> None:
    assert found(plan, node(tmp_path)) == Integrity()


def test_other_processes_load_is_what_the_workload_did_not_use_itself(plan: Plan, tmp_path: Path) -> None:
    (remark,) = found(plan, node(tmp_path, used_cores=2.5)).remarks
    assert (remark.kind, remark.host) == ("foreign load", "node1")
    assert "1.5 of 4 cores" in remark.detail
    assert (remark.from_ms, remark.to_ms) == (START_MS, START_MS + 1000 * SECONDS)


def test_samples_that_begin_after_the_start_are_enough(plan: Plan, tmp_path: Path) -> None:
    """The monitor's first sample comes a second after its own start."""
    late = node(tmp_path, used_cores=2.5)
    record = late.outcome.folder / "monitor.jsonl"
    record.write_text("".join(record.read_text().splitlines(keepends=True)[3:]))
    (remark,) = found(plan, late).remarks
    assert (remark.kind, remark.from_ms) == ("foreign load", START_MS + 2000)


def test_without_the_workloads_own_time_nothing_is_said_of_the_others(plan: Plan, tmp_path: Path) -> None:
    assert found(plan, node(tmp_path, used_cores=4.0, own_s=None)) == Integrity()


def test_hosts_on_one_kernel_count_each_others_ranks_as_their_own(plan: Plan, tmp_path: Path) -> None:
    nodes = [node(tmp_path, name, used_cores=2.0) for name in ("node1", "node2")]
    identity = MachineIdentity(boot_id="b", netns="net:[1]")
    reports = {
        "node1": a_report("node1", identity=identity),
        "node2": a_report("node2", identity=replace(identity, netns="net:[2]")),
    }
    (remark,) = found(plan, *nodes, reports=reports).remarks
    assert (remark.kind, remark.detail[:26]) == ("shared kernel", "node1, node2 run on one ke")
    assert {each.kind for each in found(plan, *nodes).remarks} == {"foreign load"}


def test_load_before_the_start_counts_where_it_was_just_seen(plan: Plan, tmp_path: Path) -> None:
    disturbed = node(tmp_path)
    for load, seconds_before, is_said in ((3.0, 60, True), (3.0, 3600, False), (1.0, 60, False)):
        reports = {"node1": a_report("node1", load=load, cores=4, checked_s=START_MS / 1000 - seconds_before)}
        kinds = [each.kind for each in found(plan, disturbed, reports=reports).remarks]
        assert kinds == (["load before start"] if is_said else [])


def test_outages_clock_heat_and_strangers_are_told_in_the_head_nodes_time(plan: Plan, tmp_path: Path) -> None:
    at = {"t_ms": START_MS + 5500, "monotonic_s": 5.5}
    disturbed = node(
        tmp_path,
        more=[
            {"source": "accelerator", "t_ms": START_MS - 500, "monotonic_s": -0.5, "values": {"devices": [DEVICE]}},
            {"source": "accelerator", **at, "values": {"devices": [{**DEVICE, "throttle_reasons": ["hw_slowdown"]}]}},
            {"source": "cpu_throttle", **at, "values": {"events": 3}},
            {
                "source": "accelerator_processes",
                **at,
                "values": {"first": False, "foreign": [{"device": 1, "pid": 77, "memory_bytes": 2_000_000_000}]},
            },
            {"source": "mem", "t_ms": START_MS + 7000 + 2000, "monotonic_s": 6.5, "values": {}},
        ],
    )
    disturbed.outages.append((START_MS + 1, START_MS + 9000, "node1: does not answer"))
    disturbed.outcome.clock_offset = 0.5
    remarks = found(plan, disturbed).remarks
    told = {each.kind: each for each in remarks}
    assert told["outage"].from_ms == START_MS + 1 and told["outage"].to_ms == START_MS + 9000
    assert told["throttled"].from_ms == START_MS + 5000
    details = [each.detail for each in remarks]
    assert "device 0: hw_slowdown, in 1 samples" in details and "the processors: heat, in 1 samples" in details
    assert "process 77 on device 1 with 2.0 GB" in details
    assert "8.6 GB of device 0 in use before the workload started" in details
    assert any(detail.startswith("the clock jumped by +") for detail in details)


@pytest.mark.parametrize(
    "text",
    [
        '{"schema":1,"t_ms":1,"monotonic_s":"x","source":"cpu"}\n',
        '{"schema":1,"t_ms":1,"source":"cpu"}\n',
        '{"schema":1,"t_ms":1e999,"monotonic_s":1,"source":"cpu"}\n',
        '{"schema":7,"t_ms":1,"source":"cpu"}\n',
        None,
    ],
)
def test_a_record_that_is_none_is_said_to_be_unwatched(text: str | None, plan: Plan, tmp_path: Path) -> None:
    disturbed = node(tmp_path)
    record = disturbed.outcome.folder / "monitor.jsonl"
    record.unlink()
    if text is not None:
        record.write_text(text)
    seen = found(plan, disturbed)
    assert seen.remarks == [] and "node1: load, clock and throttling: no monitor record" in seen.unwatched[0]


def test_a_host_cannot_flood_the_record(plan: Plan, tmp_path: Path) -> None:
    foreign = [{"device": 0, "pid": pid, "memory_bytes": None} for pid in range(1000)]
    more = [{"source": "accelerator_processes", "values": {"first": True, "foreign": foreign}}]
    remarks = found(plan, node(tmp_path, more=more)).remarks
    assert len(remarks) == MAX_REMARKS + 1 and remarks[-1].detail.startswith("950 more")


@pytest.mark.parametrize("said", ["now ", "now", "now x y", f"now {'9' * 5000}", "process", "claim", "claim a\x85", ""])
def test_a_host_s_answer_to_the_look_ends_nothing(plan: Plan, monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    host = LocalHost("localhost")
    answer = Completed(argv=(), stdout=f"{said}\n", stderr="", exit_code=0, seconds=0.1)
    monkeypatch.setattr(host, "run", lambda *_, **__: answer)
    assert look(host, plan, ProcessRuntime(), 5).host_s < 10**12


def test_what_a_host_told_before_the_deadline_counts_and_that_it_is_not_all_is_said(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = "now 5\nprocess 3 47 torchrun root\ncannot\tspace of /x\tno answer of df\nprocess 1 4 torchrun pe"

    def late(argv: Sequence[str], **_: object) -> Completed:
        raise DeadlineError("localhost", argv, 30.0, output)

    disturbed = node(tmp_path, "localhost")
    monkeypatch.setattr(disturbed.host, "run", late)
    hood = Neighbourhood(plan, ProcessRuntime())
    hood.look_before({"localhost": disturbed})
    hood.look_after({"localhost": disturbed}, left=())
    assert [remark.detail for remark in hood.remarks()] == ["root: 3 processes, such as 47 torchrun"]
    assert hood.unseen == [
        sentence
        for when in ("before the start", "after the end")
        for sentence in (
            f"other runs and file systems {when}: localhost: not all within 30 s",
            f"file systems {when}: localhost: space of /x: no answer of df",
        )
    ]
    record = round_record(tmp_path, integrity=Integrity(unwatched=hood.unseen))
    later = with_recorded(record.model_copy(update={"integrity": Integrity()}), record)
    assert later.integrity == record.integrity, "a later collection keeps what only the looks could tell"
    output = ""
    silent = Neighbourhood(plan, ProcessRuntime())
    silent.look_before({"localhost": disturbed})
    assert silent.unseen[0].endswith("did not end within 30 s and was killed")


def test_somebody_elses_torchrun_and_claims_are_seen(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    host = LocalHost("localhost")
    nodes = {"localhost": node(tmp_path, "localhost")}
    hood = Neighbourhood(plan, ProcessRuntime())
    hood.look_before(nodes)
    claims = tmp_path / ".clusterdyno/ports"
    claims.mkdir(parents=True)
    name = subprocess.run(["uname", "-n"], capture_output=True, text=True, check=True).stdout.strip()
    for port, run in ((29500, plan.key), (29501, "run19990101000000-abc")):
        (claims / f"{name}-{port}").write_text(run)
    (claims / f"{name}-1-29502").write_text("run-of-another-host")  # of a home that both hosts share
    secret, user = "hunter2hunter2", pwd.getpwuid(os.geteuid()).pw_name
    others = [subprocess.Popen(["bash", "-c", f"exec -a 'torchrun --token={secret}' sleep 60"]) for _ in range(SEVERAL)]
    try:
        while not all("torchrun" in Path(f"/proc/{each.pid}/cmdline").read_text() for each in others):
            pass
        hood.look_after(nodes, left=())
        running = look(host, plan, ProcessRuntime()).running
    finally:
        for each in others:
            each.kill()
            each.wait()
    remarks = [each for each in hood.remarks() if each.kind == "another run"]
    details = [each.detail for each in remarks]  # this machine may be full of others' jobs: a line tells the first
    assert len(in_lines(remarks)) == 1 and "run run19990101000000-abc claimed master port 29501" in details
    assert "another-host" not in str(details)
    assert plan.key not in str(details) and secret not in f"{details}{running}"
    (words,) = [each for each in running if each.startswith(f"{user}: ") and each.endswith(" torchrun")]
    counted = re.fullmatch(rf"{user}: (\d+) processes, such as (\d+) torchrun", words)
    assert any(each.startswith(f"{user}: ") and each.endswith(" torchrun") for each in details), details
    assert counted and int(counted[1]) >= SEVERAL, words


def test_a_hosts_flood_of_other_runs_is_a_line(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """300,000 lines of one host made a report of 29 MB."""
    lines = [f"process {n % 7} {n} torchrun user{n % 9}" for n in range(300_000)]
    lines += [f"claim run{n} {n % 65536}" for n in range(300_000)] + ["process 1 1 torchrun \x1b]52;c;YQ==\x07 x" * 99]
    answer = Completed(argv=(), stdout="\n".join(lines), stderr="", exit_code=0, seconds=0.1)
    disturbed = node(tmp_path, "localhost")
    monkeypatch.setattr(disturbed.host, "run", lambda *_, **__: answer)
    hood = Neighbourhood(plan, ProcessRuntime())
    hood.look_before({"localhost": disturbed})
    hood.look_after({"localhost": disturbed}, left=())
    remarks = list(hood.remarks())
    assert len(remarks) == 2 * (5 + 1) and sum(len(each.detail) for each in remarks) < 1000
    assert "4 more kinds of processes" in {each.detail for each in remarks}
    (told,) = in_lines(remarks)
    assert told.detail.startswith("user") and told.detail.endswith("and 9 more, in round.json")


def test_many_remarks_of_a_host_are_a_line_for_each_kind() -> None:
    remarks = [Remark(kind="throttled", host="node1", detail=f"device {n}", from_ms=n, to_ms=n + 5) for n in range(8)]
    remarks[3:3] = [
        Remark(kind="outage", host="node1", detail="x" * 1000),
        Remark(kind="throttled", host=None, detail=""),
    ]
    first, outage, other = in_lines(remarks)
    assert str(first) == "node1: throttled: device 0; device 1; device 2; and 5 more, in round.json"
    assert (first.from_ms, first.to_ms) == (0, 12)
    assert outage.detail == f"{'x' * 300}... (700 more characters in round.json)" and other.host is None


def test_console_and_report_say_pass_with_remarks(tmp_path: Path) -> None:
    remarks = [
        Remark(kind="outage", host=f"node{n}", detail="<b>out</b>", from_ms=START_MS, to_ms=START_MS) for n in range(7)
    ]
    record = round_record(tmp_path, integrity=Integrity(remarks=remarks, unwatched=["node9: nothing"]))
    assert record.verdict_text == "pass, with 7 remarks"
    run = run_record({"busbw_GBps": 1.5}, remarks=[f"round 1: {remark}" for remark in remarks])
    rows = case_rows(run)
    assert rows[0][1] == "pass, with 7 remarks"
    assert [row[5] for row in rows if row[4] == "remark"][-2:] == [
        "round 1: node4: outage: <b>out</b>",
        "and 2 more, in report.html",
    ]
    page = write_report(tmp_path, run, [record]).read_text()
    assert page.count("pass, with 7 remarks") == 1 and "Integrity: 7 remarks" in page
    assert "node6: outage: &lt;b&gt;out&lt;/b&gt; (+0.0 s to +0.0 s)" in page and "Not watched: node9: nothing" in page
    assert run_record({}).cases[0].verdict_text == "pass"


def test_a_real_hog_beside_a_monitored_round_is_a_remark(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor as it runs on a host, and three processes that are not the round's."""
    monkeypatch.setattr("run_benchmarks.rounds.integrity.SHORTEST_S", 1.0)
    disturbed = node(tmp_path, "localhost")
    folder = disturbed.outcome.folder
    (folder / "monitor.jsonl").unlink()
    hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(3)]
    try:
        with Monitor(folder, "--interval=0.1", "--max_seconds=100") as monitor:
            first = monitor.wait_for("cpu")[0]["t_ms"]
            time.sleep(2.0)
            last = monitor.wait_for("cpu", 12)[-1]["t_ms"]
            monitor.end(by=signal.SIGTERM)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    NodeExit(exit_code=0, argv=[], interface=None, torch=None, cpu_s=0.1, started_ms=first, finished_ms=last).write(
        folder
    )
    (remark,) = [each for each in found(plan, disturbed).remarks if each.kind == "foreign load"]
    assert "cores on average while the workload ran" in remark.detail and remark.from_ms == first


class Task:
    """Answers nothing for some waits, as behind a dropped link, then ends."""

    def __init__(self, silent: int) -> None:
        self._silent = silent

    def wait(self, seconds: float) -> int | None:
        self._silent -= 1
        if self._silent >= 0:
            raise LinkLostError("localhost", "no answer")
        return None if self._silent == -1 else 0


def test_an_outage_that_a_round_survives_is_noted_with_its_time(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("run_benchmarks.rounds.watch.RECONNECT_SECONDS", 0.1)
    prepared = prepare(load(TEST), "run20261121191924")
    plan = prepared.plan
    (tmp_path / "x").mkdir()
    cut = node(tmp_path / "x", "localhost")
    cut.workload = cast(RunningTask, Task(silent=3))
    context = RunContext(
        plan=plan,
        code=prepared.code,
        hosts={"localhost": cut.host},
        reports={},
        runtime=ProcessRuntime(),
        result_dir=tmp_path,
        interruption=Interruption("clean"),
        link_limit=5.0,
    )
    began = time.time_ns() // 1_000_000
    assert Watch(context, plan.cases[0], 1, {"localhost": cut}).run() is None
    ((first, last, detail),) = cut.outages
    assert began <= first and 200 <= last - first < 60_000 and "no answer" in detail
    assert [each.kind for each in found(plan, cut).remarks] == ["outage"]
