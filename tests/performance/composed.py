"""How well an iteration's communication follows from its parts: predicted from measured ones, then measured, in turn.

Four gloo ranks. Parts (A): each collective after a matrix product, at sizes a factor of four apart, and the product
alone; `predict --measured` reads them and interpolates. Iterations (B): the calls of a step of four jobs of the dialect
framework (TP, DP, ZeRO-3, experts), each after such a product, as the executor issues them. A and B follow each other
on three occasions; a row has the median of their errors. The ratio is predicted over measured.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from simulation.predict.measured_network import MeasuredLinks
from tests.performance.ranks import SMOKE_OPTION, measured_by_ranks
from tests.performance.rows import Row
from workloads.dialects.generation import generate
from workloads.formats.simai_text import KNOWN
from workloads.options import resolve
from workloads.rows.ops import CommType

RANKS, WIDTH, OCCASIONS = 4, 384, 3
REPEATS, SMOKE_REPEATS = 40, 2
GOAL_PERCENT, WORST_PERCENT = 5.0, 10.0
SIZES = [1 << exponent for exponent in range(10, 25, 2)]
KINDS = {
    CommType.all_reduce: "all_reduce", CommType.all_gather_into_tensor: "all_gather",
    CommType.reduce_scatter_tensor: "reduce_scatter", CommType.all_to_all_single: "all_to_all",
}  # fmt: skip
MODEL = {
    "world_size": RANKS, "num_layers": 4, "hidden_size": 256, "num_attention_heads": 8, "seq_length": 256,
    "vocab_size": 4096, "ffn_hidden_size": 1024, "global_batch": RANKS,
}  # fmt: skip
JOBS = {
    "TP": {"frame": "Megatron", "tensor_model_parallel_size": RANKS},
    "DP": {"frame": "Megatron", "use_distributed_optimizer": True},
    "ZeRO-3": {"frame": "DeepSpeed", "stage": 3},
    "MoE": {"frame": "Megatron", "moe_enable": True, "num_experts": RANKS, "expert_model_parallel_size": RANKS,
            "moe_router_topk": 2, "moe_grouped_gemm": True},
}  # fmt: skip
_MARK = "composed-performance "
Calls = list[tuple[CommType, int]]


def calls_of(job: str) -> Calls:
    """The collectives of all ranks in an iteration, with their bytes, rounded up to a share of 4 bytes a rank."""
    args = resolve({**MODEL, **JOBS[job]}, None, "csv", "framework")
    rows = generate(args, dialect="framework").epoch(1)
    unit = 4 * RANKS
    return [
        (row.comm_type, -(-int(row.msg_size) // unit) * unit)
        for row in rows
        if row.comm_type in KINDS and row.comm_group_size == RANKS and isinstance(row.msg_size, int | float)
    ]


def predicted_ms(calls: Calls, links: MeasuredLinks, product_us: float) -> float:
    """Each call as it was measured at the sizes beside its own, and a product before it."""
    found = 0.0
    for kind, size in calls:
        us = links.collective_us(KNOWN[KINDS[kind]], RANKS, 1, size, RANKS)
        assert us is not None
        found += us + product_us
    return found / 1e3


def measure(*, smoke: bool = False) -> list[Row]:
    """A row for each job."""
    found = measured_by_ranks("tests.performance.composed", _MARK, ranks=RANKS, smoke=smoke, timeout_s=900)
    rows = []
    for job in JOBS:
        pairs = []
        for occasion in found["occasions"]:
            with tempfile.TemporaryDirectory() as name:
                path = Path(name) / "parts" / "round1" / "round.json"
                path.parent.mkdir(parents=True)
                path.write_text(json.dumps({"verdict": "pass", "steps": occasion["steps"]}))
                ms = predicted_ms(calls_of(job), MeasuredLinks(Path(name)), occasion["product_us"])
            pairs.append((ms, occasion["jobs"][job]))
        errors = [100 * (ms / took - 1) for ms, took in pairs]
        repeats = [took for _, took in pairs]
        spread = 100 * (max(repeats) - min(repeats)) / statistics.median(repeats)
        error = statistics.median(errors)
        rows.append(
            Row(
                what=f"an iteration's communication from its parts: {job}, 4 gloo ranks",
                measured=f"{statistics.median(ms for ms, _ in pairs):.1f} ms predicted ({error:+.1f} %)",
                baseline=f"{statistics.median(repeats):.1f} ms measured (spread {spread:.1f} %)",
                ratio=statistics.median(ms / took for ms, took in pairs),
                goal=f"within {GOAL_PERCENT:g} %, each within {WORST_PERCENT:g} % or 1.5 times the spread",
                met=abs(error) <= GOAL_PERCENT and max(map(abs, errors)) <= max(WORST_PERCENT, 1.5 * spread),
            )
        )
    return rows


def _median_us(run: Callable[[], None], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        times.append(time.perf_counter() - begin)
    return statistics.median(times) * 1e6


def _main() -> None:
    """One rank of the run that `measure` starts."""
    repeats = SMOKE_REPEATS if SMOKE_OPTION in sys.argv else REPEATS
    import torch
    import torch.distributed as dist

    from training.benchmarks.aicb.pytorch.running.operations import BoundCall
    from training.benchmarks.driver.workload.process_group import init
    from training.benchmarks.driver.workload.team import Team
    from workloads.rows.calls import Call
    from workloads.rows.ranks import Ranks

    torch.set_num_threads(1)
    with init("gloo", timeout_s=600) as group:
        ranks, everyone = tuple(range(RANKS)), Ranks.of(range(RANKS))
        arena = torch.zeros(4 * SIZES[-1], dtype=torch.uint8)
        team = Team(ranks=ranks, rank=group.placement.rank, device=arena.device)
        matrix = torch.rand(WIDTH, WIDTH)

        def product() -> None:
            torch.mm(matrix, matrix)

        def issue(kind: CommType, size: int) -> Callable[[], object]:
            return BoundCall(Call(kind, "all", everyone, "float32", size, ""), team, arena, 0).issue(is_async=False)

        def after_product(calls: Calls) -> Callable[[], None]:
            bound = [issue(kind, size) for kind, size in calls]

            def run() -> None:
                for each in bound:
                    torch.mm(matrix, matrix)
                    each()

            return run

        occasions = []
        for _ in range(1 if repeats == SMOKE_REPEATS else OCCASIONS):
            dist.barrier()
            product_us = _median_us(product, 10 * repeats)
            steps: list[dict[str, object]] = []
            for kind, name in KINDS.items():
                for size in SIZES:
                    dist.barrier()
                    both = _median_us(after_product([(kind, size)]), max(SMOKE_REPEATS, repeats >> (size >> 24)))
                    us = max(1.0, both - product_us)
                    steps.append({"collective": name, "world_size": RANKS, "size_bytes": size, "time_us": {"p50": us}})
            jobs = {}
            for job in JOBS:
                run = after_product(calls_of(job))
                dist.barrier()
                jobs[job] = _median_us(run, max(SMOKE_REPEATS, repeats // 4)) / 1e3
            occasions.append({"product_us": product_us, "steps": steps, "jobs": jobs})
        if group.placement.rank == 0:
            print(_MARK + json.dumps({"occasions": occasions}), flush=True)


if __name__ == "__main__":
    _main()
