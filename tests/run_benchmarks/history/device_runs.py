"""Runs of the device tests, with a made-up figure of each host."""

from collections.abc import Mapping
from pathlib import Path

from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.records import NodeRecord, RoundRecord
from tests.run_benchmarks.results.network_rounds import a_round, case
from tests.run_benchmarks.results.recorded_runs import a_run
from tests.run_benchmarks.results.rounds import host_record


def device_run(number: int, of_hosts: Mapping[str, float]) -> LoadedRun:
    """A run in which each host has one device with this figure of matmul_bf16; the slow ones are degraded."""
    node = a_round([]).nodes[0]
    nodes: list[NodeRecord] = [
        node.model_copy(update={"host": host, "node_rank": rank, "ranks": [rank]}) for rank, host in enumerate(of_hosts)
    ]
    step = {"test": "matmul_bf16", "unit": "TFLOPS", "values_of_ranks": list(of_hosts.values()), "bad_ranks": {}}
    figure = {"matmul_bf16_TFLOPS": min(of_hosts.values())}
    record: RoundRecord = a_round([step], **figure).model_copy(
        update={"nodes": nodes, "case": "DEVICES", "devices": ["H100"]}
    )
    tested = case("base", tests=["matmul_bf16"]).model_copy(
        update={"name": "DEVICES", "folder": "DEVICES", "nproc": 1, "nnodes": len(nodes), "metrics": figure}
    )
    hosts = [
        host_record(host, devices=["H100"], state="healthy", state_reason="")
        if value > 90
        else host_record(host, devices=["H100"], state="degraded", state_reason="slow")
        for host, value in of_hosts.items()
    ]
    began = {"started_ms": 1_790_000_000_000 + number, "finished_ms": 1_790_000_000_001 + number}
    run = a_run(f"run202611010{number}0000", []).record.model_copy(update={**began, "hosts": hosts, "cases": [tested]})
    return LoadedRun(folder=Path(run.run_id), record=run, rounds={"DEVICES": [record]})
