"""Writes the result folder of a run of many hosts with a failed case, a drained host and a bad link, as run.py does.

Records and curves go through the product's own types; the samples are drawn by a seed. It takes the place of a cluster
of hundreds of GPUs, which no test has.
"""

import math
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from protocol.finding import PartFinding
from protocol.perflog import Event, PerfLogRecord
from protocol.perflog.record import Metadata
from run_benchmarks.results.curves import CURVES_FILE, NodeCurves, RoundCurves, node_curves
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.first_failure import FirstFailure
from run_benchmarks.results.records import (
    CaseRecord,
    KeyFigure,
    NodeRecord,
    RoundRecord,
    RunRecord,
    Verdict,
    record_text,
    worst,
    write_record,
    write_text,
)
from run_benchmarks.results.samples.timeline import Timeline
from run_benchmarks.results.step_curves import StepBuckets, StepCurves, step_curves
from run_benchmarks.session.run_record import host_state
from tests.run_benchmarks.results.rounds import START_MS, host_record
from tests.training.benchmarks.network.synthetic import slowest_member, steps

HOT, LINK, LOST = 42, 17, 58
SIZES = [1 << power for power in range(10, 34)]
KINDS = 4  # of hosts whose samples are drawn one by one; the others are scaled from them


def name_of(host: int) -> str:
    """The name of a host."""
    return f"node{host:02d}"


def write_sample(folder: Path, *, hosts: int = 64, devices: int = 8, seconds: int = 3600, evil: str = "") -> Path:
    """The folder of the run. `evil` is added to each text that comes from a host or a benchmark."""
    run_id = "run20261123091400"
    draw = random.Random(7)
    root = folder / run_id
    curves, shared = _curves(hosts, devices, seconds, draw), _steps(hosts * devices, draw)
    plan = _cases(hosts, devices, evil)
    rounds = {}
    for name, case in plan.items():
        rounds[name] = [_round(run_id, case, number, hosts, devices, evil) for number in (1, 2, 3)[: len(case.rounds)]]
        for record in rounds[name]:
            place = root / case.folder / f"round{record.round}"
            place.mkdir(parents=True)
            is_training = case.model in ("llama", "bert", "glm", "cpm")
            found = RoundCurves(nodes=curves, steps=shared if is_training else None)
            write_text(place / CURVES_FILE, record_text(found, indent=None))
            write_record(place / "round.json", record)
    write_record(root / "run.json", _run(run_id, list(plan.values()), rounds, hosts, devices))
    return root


def _run(
    run_id: str, cases: list[CaseRecord], rounds: Mapping[str, Sequence[RoundRecord]], hosts: int, devices: int
) -> RunRecord:
    every = [record for records in rounds.values() for record in records]
    found = []
    for host in range(hosts):
        state, reason = host_state(name_of(host), {}, every)
        found.append(
            host_record(
                name_of(host), address=f"10.1.{host // 250}.{host % 250 + 1}", docker_version="28.5.1",
                devices=["H100"] * devices, interface="bond0", clock_offset_seconds=0.0004, state=state,
                state_reason=reason,
            )
        )  # fmt: skip
    return RunRecord(
        run_id=run_id,
        verdict=worst(case.verdict for case in cases),
        exit_code=1,
        started_ms=START_MS,
        finished_ms=START_MS + 9_660_000,
        command=["run_benchmarks/run.py", "--cluster-conf", "site/cluster_conf.py", "run"],
        runtime="docker",
        vendor="nvidia",
        code_digest="4f1c2ab09d3e7765",
        git_revision="4f1c2ab09d3e77651122334455667788990011aa",
        versions={"python": "3.12.3", "paramiko": "4.0.0"},
        hosts=found,
        drain=drain_list(rounds),
        cases=cases,
    )


def _cases(hosts: int, devices: int, evil: str) -> dict[str, CaseRecord]:
    """Ten cases: one failed, two degraded, seven that passed."""
    tokens, gbps = "tokens/s/device", "GB/s"
    lines: list[tuple[str, str, Verdict, str, str, float, float | None, float]] = [
        ("AICB_GPT_175B", "aicb", Verdict.FAIL, "iteration_p50_ms", "ms", 0.0, None, 0.0),
        ("LLAMA2_70B", "llama", Verdict.DEGRADED, "tokens_per_second_per_device", tokens, 412.6, 92.1, 118e6),
        ("ALL_REDUCE", "network", Verdict.DEGRADED, "max_busbw_GBps", gbps, 341.2, 88.6, 2.2e6),
        ("LLAMA2_7B", "llama", Verdict.PASS, "tokens_per_second_per_device", tokens, 3846.0, 101.3, 74e6),
        ("GLM_130B", "glm", Verdict.PASS, "tokens_per_second_per_device", tokens, 236.1, 99.4, 101e6),
        ("CPM_10B", "cpm", Verdict.PASS, "tokens_per_second_per_device", tokens, 2210.0, 98.7, 38e6),
        ("BERT_LARGE", "bert", Verdict.PASS, "throughput(sps)_raw", "samples/s", 1187.0, 100.8, 9.1e6),
        ("ALL_PAIRS", "network", Verdict.PASS, "max_busbw_GBps", gbps, 376.9, 97.9, 2.1e6),
        ("ALL_TO_ALL", "network", Verdict.PASS, "max_busbw_GBps", gbps, 48.3, 96.6, 3.0e6),
        ("DEVICES", "base", Verdict.PASS, "matmul_bf16_TFLOPS", "TFLOPS", 689.5, 95.2, 6.4e6),
    ]
    return {
        line[0]: _case(line, hosts, devices, evil) for line in lines
    }  # fmt: skip


def _case(
    line: tuple[str, str, Verdict, str, str, float, float | None, float], hosts: int, devices: int, evil: str
) -> CaseRecord:
    name, model, verdict, metric, unit, value, percent, joules = line
    reasons = {
        "AICB_GPT_175B": f"round 1: {name_of(LOST)} rebooted at 10:41 (another boot id): no later round is possible",
        "LLAMA2_70B": f"{name_of(HOT)} device 5 is the slowest in 9 of 10 steps; all ranks finished",
        "ALL_REDUCE": f"link mlx5_4 of {name_of(LINK)} runs at 200 Gbit/s; all ranks finished",
    }
    key = KeyFigure(
        metric=metric, unit=unit, better="higher", value=value, of_rounds=[0.995 * value, value, 1.004 * value],
        percent_of_expected=percent, expected="baseline site.json",
    )  # fmt: skip
    return CaseRecord(
        name=name + evil,
        folder=name,
        model=model,
        framework="pytorch",
        config_file=f"vendors/nvidia/{model}-pytorch/config/config_H100x{hosts}x{devices}.py",
        config={"sequence_length": 4096, "strategy": f"fsdp2{evil}"} if model != "network" else {"slow_percent": 15.0},
        nnodes=hosts,
        nproc=devices,
        verdict=verdict,
        reason=reasons.get(name, "all rounds passed") + evil,
        rounds=[verdict],
        attempts=[1],
        metrics={metric + evil: value} | ({"warmup_steps": 20} if model in ("llama", "glm", "cpm", "bert") else {}),
        key=key if verdict.is_measured else None,
        joules={"ipmi": joules} if joules else {},
        remarks=[f"round 1: node09: foreign load: another user's process on device 2{evil}"] * (name == "CPM_10B"),
    )


def _round(run_id: str, case: CaseRecord, number: int, hosts: int, devices: int, evil: str) -> RoundRecord:
    name = case.folder
    failure = None
    if case.verdict is Verdict.FAIL:
        failure = FirstFailure(
            host=name_of(LOST), rank=LOST * devices, exit_code=None, signal=None, lost=True,
            message=f"rebooted at 10:41:07 (another boot id){evil}", log_tail=f"step 61 of 200\n{evil}",
        )  # fmt: skip
    return RoundRecord(
        run_id=run_id,
        case=case.name,
        round=number,
        verdict=case.verdict,
        reason=case.reason,
        first_failure=failure,
        started_ms=START_MS,
        finished_ms=START_MS + 3_640_000,
        phase_seconds={"prepare": 4.2, "launch": 7.9, "run": 3600.0, "stop": 0.4, "collect": 21.5},
        master_port=29500,
        world_size=hosts * devices,
        metrics=case.metrics,
        steps=_logged(case, hosts, devices),
        findings=_findings(name, evil),
        nodes=[_node(host, devices, evil) for host in range(hosts)],
    )


def _logged(case: CaseRecord, hosts: int, devices: int) -> list[dict[str, Any]]:
    """What rank 0 logs at its steps."""
    if case.folder == "ALL_PAIRS":
        shown = steps("pairs", min(hosts, 64), slowest_member({f"node{LINK + 1}": 0.5}), noise=0.01, seed=1, repeats=1)
        return shown
    if case.model == "network":
        return [{"size_bytes": size, "busbw_GBps": 0.9 * min(380.0, size / 9e5)} for size in SIZES]
    if case.model == "base":
        values = [690.0 + rank % 7 for rank in range(min(64, hosts * devices))]
        tests = [("matmul_bf16", 989.0, "TFLOPS"), ("memory", 3350.0, "GB/s")]
        return [
            {"test": test, "unit": unit, "values_of_ranks": [v * promise / 989 for v in values], "datasheet": promise,
             "bad_ranks": {}}
            for test, promise, unit in tests
        ]  # fmt: skip
    return [{"step": step, "loss": 2.6 + 8.4 * math.exp(-step / 35)} for step in range(1, 201)]


def _findings(name: str, evil: str) -> list[PartFinding]:
    if name == "LLAMA2_70B":
        return [
            PartFinding(
                part="device", hosts=(name_of(HOT),), device="device 5", kind="intermittent", severity="fault",
                evidence=f"clock fell to 1,095 MHz at 88 °C in 61 % of the steps; peers 1,755 MHz at 71 °C{evil}",
                suggested_action="check its cooling, then run the device tests again",
                drained_hosts=(name_of(HOT),), sentence=f"{name_of(HOT)} device 5 throttles{evil}",
            )
        ]  # fmt: skip
    if name == "ALL_REDUCE":
        return [
            PartFinding(
                part="device", hosts=(name_of(LINK),), device="mlx5_4", kind="link_speed", severity="fault",
                evidence="200 Gbit/s, 400 at its peers; pairs with it reach 49 % of the median",
                suggested_action="reseat the transceiver or swap the cable", drained_hosts=(name_of(LINK),),
                sentence=f"{name_of(LINK)} mlx5_4 is half as fast as it can be",
            )
        ]  # fmt: skip
    return []


def _node(host: int, devices: int, evil: str) -> NodeRecord:
    return NodeRecord(
        host=name_of(host),
        node_rank=host,
        ranks=list(range(host * devices, (host + 1) * devices)),
        exit_code=0,
        argv=["python3"],
        environment={},
        image=None,
        image_id=None,
        interface="bond0",
        clock_offset_seconds=0.0004,
        files={f"rank{host * devices}.out.log{evil}": {"size": 12, "sha256": "0" * 64}},
        missing=[],
        monitor=None,
    )


def _curves(hosts: int, devices: int, seconds: int, draw: random.Random) -> list[NodeCurves]:
    """The monitors of all hosts; the hot one's device is hot."""
    kinds = [_timeline(devices, seconds, draw, is_hot=False) for _ in range(min(KINDS, hosts))]
    hot = _timeline(devices, seconds, draw, is_hot=True)
    found = []
    for host in range(hosts):
        timeline = hot if host == HOT else kinds[host % len(kinds)]
        work = (START_MS + 60_000, START_MS + 1000 * seconds - 60_000)
        each = node_curves(name_of(host), host, timeline, 0.0, work)
        assert each is not None
        found.append(each)
    return found


def _timeline(devices: int, seconds: int, draw: random.Random, *, is_hot: bool) -> Timeline:
    """One sample a second, as a monitor writes them."""
    timeline = Timeline()
    for second in range(seconds):
        at = START_MS + 1000 * second
        busy = 60 < second < seconds - 60
        hot = [is_hot and index == 5 and second % 300 > 120 for index in range(devices)]
        timeline.take("cpu", at, {"utilization_percent": (25 if busy else 4) + draw.random() * 5})
        timeline.take("mem", at, {"used_percent": 40 + draw.random()})
        timeline.take("power", at, {"meter": "ipmi", "watts": (7200 if busy else 2100) + draw.random() * 90})
        samples = [
            {
                "index": index,
                "utilization_percent": 98.0 if busy else 0.0,
                "power_w": (690 if busy else 90) - 150 * hot[index] + draw.random() * 8,
                "temperature_c": (70 if busy else 40) + 18 * hot[index],
                "sm_clock_mhz": 1095 if hot[index] and busy else 1755,
                "memory_used_bytes": 71e9,
            }
            for index in range(devices)
        ]
        timeline.take("accelerator", at, {"devices": samples})
    return timeline


def _steps(ranks: int, draw: random.Random) -> StepCurves | None:
    """200 steps of all ranks, of which one is slow."""
    found = {}
    slow = min(341, ranks - 1)
    for rank in range(ranks):
        buckets = StepBuckets()
        late = 31 if rank == slow else draw.expovariate(1 / 1.5)
        for step in range(1, 201):
            rate = 448 * (1 - math.exp(-step / 4)) * (1 - 0.002 * draw.random() - (0.11 if rank == slow else 0))
            value: dict[str, JsonValue] = {"step": step, "tokens/s_interval": rate}
            at = START_MS + 1000 * step + round(late)
            metadata = Metadata(file="f", lineno=1, time_ms=at, rank=rank)
            buckets.add(PerfLogRecord.model_construct(event=Event.STEP_END, value=value, metadata=metadata))
        found[rank] = buckets
    return step_curves(found, {})
