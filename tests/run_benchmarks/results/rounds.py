"""Rounds as they lie on disk after a collection: plans, rank logs, node_exit.json, monitors' records."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from protocol.node_record import NodeExit, RankFailure
from protocol.perflog import Event, Metadata, PerfLogRecord, SubmitInfo, format_record
from run_benchmarks.plan.plan import NodePlan, Task
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.records import HostRecord, NodeRecord, RoundRecord, RunRecord, Verdict
from run_benchmarks.settings.container_options import ContainerOptions

START_MS = 1_790_000_000_000
SUBMIT = SubmitInfo(
    vendor="cpu",
    model="network",
    framework="pytorch",
    case="ONE",
    case_sha256="5" * 64,
    config={},
    world_size=2,
    nnodes=1,
    torch="2.13.0",
    backend="gloo",
)
STEP: dict[str, Any] = {
    "pattern": "all",
    "hosts": ["a"],
    "world_size": 2,
    "size_bytes": 1024,
    "time_us": {"p50": 10.5, "p95": 12.0},
    "algbw_GBps": 0.1,
    "busbw_GBps": 0.15,
    "correct": "pass",
}


def perflog(rank: int, finished: Mapping[str, Any], *, until: Event | None = None) -> str:
    """A rank's log of one step; `until` leaves out what comes after that event."""
    values: list[tuple[Event, Any]] = [
        (Event.SUBMIT_INFO, SUBMIT.model_dump()),
        (Event.INIT_START, None),
        (Event.INIT_END, None),
        (Event.TRAIN_START, None),
        (Event.STEP_BEGIN, None),
        (Event.STEP_END, STEP),
        (Event.TRAIN_END, None),
        (Event.FINISHED, dict(finished)),
    ]
    lines = ["an ordinary line"]
    for index, (event, value) in enumerate(values):
        metadata = Metadata(file="x.py", lineno=index, time_ms=START_MS + index, rank=rank)
        lines.append(format_record(PerfLogRecord(event=event, value=value, metadata=metadata)))
        if event is until:
            break
    return "\n".join(lines) + "\n"


def node_plan(host: str, node_rank: int, ranks: Sequence[int]) -> NodePlan:
    def task(name: str) -> Task:
        environment = {"HF_TOKEN": "hf_secret", "NCCL_DEBUG": "WARN"}
        labels = {"org.clusterdyno.task": name}
        return Task(
            name=f"x-{name}", argv=("python3", "--port", "{master_port}"), environment=environment, labels=labels
        )

    return NodePlan(
        host=host,
        node_rank=node_rank,
        ranks=tuple(ranks),
        image=None,
        workdir="/code",
        log_dir_host="/logs",
        case_file_host="/case.json",
        mounts=(),
        options=ContainerOptions(),
        workload=task("workload"),
        monitor=task("monitor"),
    )


def node_exit(exit_code: int = 0, failures: Sequence[RankFailure] = (), **others: Any) -> NodeExit:
    fields = {
        "argv": ["launch"],
        "interface": "eth0",
        "started_ms": START_MS,
        "finished_ms": START_MS + 100,
        "torch": "2.13.0",
    }
    return NodeExit.model_validate({**fields, "exit_code": exit_code, "failures": list(failures), **others})


def rank_failure(rank: int, at_ms: int, **others: Any) -> RankFailure:
    """A rank that left with exit code 7 `at_ms` milliseconds after the start, unless `others` say else."""
    fields = {
        "rank": rank,
        "local_rank": 0,
        "pid": 1,
        "exit_code": 7,
        "signal": None,
        "time_ms": START_MS + at_ms,
        "message": f"Traceback\nValueError: rank {rank}",
        "stopped": False,
    }
    return RankFailure.model_validate({**fields, **others})


def write_monitor(folder: Path) -> None:
    samples: list[dict[str, Any]] = [
        {"source": "cpu", "values": {"utilization_percent": 25.0}},
        {"source": "mem", "values": {"used_percent": 40.0, "used_bytes": 4 << 30, "total_bytes": 10 << 30}},
        {"source": "power", "values": {"meter": "rapl", "watts": 95.5, "joules": 955.0, "method": "counter"}},
        {"source": "power", "meter": "ipmi", "unavailable": "no <b>device</b>"},
    ]
    lines = [json.dumps({"schema": 1, "t_ms": START_MS + index, **s}) for index, s in enumerate(samples)]
    (folder / "monitor.jsonl").write_text("\n".join(lines) + "\n")


def outcome(
    folder: Path,
    host: str = "node1",
    node_rank: int = 0,
    ranks: Sequence[int] = (0, 1),
    *,
    exit_code: int | None = 0,
    record: NodeExit | None = None,
    finished: Mapping[str, Any] | None = None,
    until: Event | None = None,
    **others: Any,
) -> NodeOutcome:
    """A node after a round with all its files written."""
    folder = folder / f"{host}_noderank{node_rank}"
    folder.mkdir(parents=True)
    for rank in ranks:
        text = perflog(rank, finished or {"correct": "pass", "busbw_GBps": 1.5}, until=until)
        (folder / f"rank{rank}.out.log").write_text(text)
    (record or node_exit(exit_code or 0)).write(folder)
    write_monitor(folder)
    (folder / "sys_info.json").write_text("{}")
    return NodeOutcome(node=node_plan(host, node_rank, ranks), folder=folder, exit_code=exit_code, **others)


def round_record(folder: Path, **others: Any) -> RoundRecord:
    """A round of one node that passed; `others` are other values of its fields."""
    node = outcome(folder)
    fields: dict[str, Any] = {
        "run_id": "run20261121191924",
        "case": "ONE",
        "round": 1,
        "verdict": Verdict.PASS,
        "reason": "all ranks finished",
        "started_ms": START_MS,
        "finished_ms": START_MS + 1500,
        "phase_seconds": {"prepare": 0.1, "run": 1.2},
        "master_port": 29500,
        "world_size": 2,
        "metrics": {"busbw_GBps": 1.5},
        "steps": [STEP],
        "nodes": [node_record(node)],
    }
    return RoundRecord.model_validate({**fields, **others})


def node_record(node: NodeOutcome, **others: Any) -> NodeRecord:
    fields: dict[str, Any] = {
        "host": node.node.host,
        "node_rank": 0,
        "ranks": [0, 1],
        "exit_code": 0,
        "argv": ["python3"],
        "environment": {},
        "image": None,
        "image_id": None,
        "interface": "eth0",
        "clock_offset_seconds": 0.0123,
        "files": {"rank0.out.log": {"size": 12, "sha256": "0" * 64}},
        "missing": [],
        "monitor": node.monitor_summary(),
    }
    return NodeRecord.model_validate({**fields, **others})


def host_record(name: str, **others: Any) -> HostRecord:
    """A host; `others` are other values of its fields."""
    fields: dict[str, Any] = {"address": name, "kernel": "Linux 6.1", "hostname": name, "user": "bench", "devices": []}
    fields |= {"docker_version": None, "interface": None, "clock_offset_seconds": 0.0}
    return HostRecord(name=name, **{**fields, **others})


def run_record(case_metrics: Mapping[str, Any], **others: Any) -> RunRecord:
    """A run of case ONE; `others` are other values of the case's fields."""
    case: dict[str, Any] = {
        "name": "ONE",
        "folder": "ONE",
        "model": "network",
        "framework": "pytorch",
        "config_file": "vendors/cpu/network-pytorch/config/config_CPUx1x2.py",
        "config": {},
        "nnodes": 1,
        "nproc": 2,
        "verdict": "pass",
        "reason": "all ranks finished",
        "rounds": ["pass"],
        "metrics": dict(case_metrics),
    }
    return RunRecord.model_validate(
        {
            "run_id": "run20261121191924",
            "verdict": "pass",
            "exit_code": 0,
            "started_ms": START_MS,
            "finished_ms": START_MS + 2500,
            "command": ["run.py"],
            "runtime": "process",
            "vendor": "cpu",
            "code_digest": "abc",
            "git_revision": "0123456789abcdef-dirty",
            "versions": {},
            "hosts": [host_record("node1", address="10.0.0.1", clock_offset_seconds=-0.0005)],
            "cases": [{**case, **others}],
        }
    )
