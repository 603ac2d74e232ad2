"""How well an iteration follows from its parts: predicted from measured ones, then measured, in turn.

Four gloo ranks. Iterations (B): the calls of a step of four jobs of the dialect framework (TP, DP, ZeRO-3, experts),
each after a matrix product, as the executor issues them. Parts (A), at sizes a factor of four apart, are read as
`predict --measured` reads them, in two ways: the product of all ranks at once and what the network suite's
`after_compute_ms` measures, or each collective and the product before it in a loop. A B A B on each of three occasions,
which start new ranks; the results of an occasion are kept until all are measured, so that a call of the same commit
that was interrupted continues.

A time is the median of blocks' means: of calls that sometimes wait for a core, a median tells less than what each adds
to an iteration. Each rank is held to one core: else three of four may share one for as long as a block lasts.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.whole_files import write_text
from run_benchmarks.session.revision import revision
from simulation.predict.measured_network import MeasuredLinks
from tests.performance.ranks import ROOT, SMOKE_OPTION, measured_by_ranks
from tests.performance.rows import Row
from workloads.dialects.generation import generate
from workloads.formats.simai_text import KNOWN
from workloads.options import resolve
from workloads.rows.ops import CommType

if TYPE_CHECKING:  # torch is imported by the ranks alone
    from training.benchmarks.driver.workload.team import Team
    from training.benchmarks.network.pytorch.choices import CollectiveName

RANKS, WIDTH, OCCASIONS = 4, 384, 3
COMPUTE_MS = 5.0  # about as long as the product takes where ranks share a core
GOAL_PERCENT, WORST_PERCENT = 5.0, 10.0
SIZES = [1 << exponent for exponent in range(10, 25, 2)]
KINDS: "dict[CommType, CollectiveName]" = {
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
SUITE, LOOPS = "the network suite after compute", "loops"
_MARK = "composed-performance "
Calls = Sequence[tuple[CommType, int]]
Steps = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """turns: how often an occasion measures A and B; calls: in a block of small messages; blocks: for each part or job
    in a turn.
    """

    turns: int
    calls: int
    blocks: int


FULL, SMOKE = Effort(turns=2, calls=10, blocks=4), Effort(turns=1, calls=1, blocks=1)


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


def links_of(steps: Steps) -> MeasuredLinks:
    """The collectives' times that these steps of the network benchmark measured.

    Raises:
        InputProblems: no steps.
    """
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "parts" / "round1" / "round.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps({"verdict": "pass", "steps": steps}))
        return MeasuredLinks(Path(name))


def predicted_ms(calls: Calls, links: MeasuredLinks, product_us: float) -> float:
    """Each call as measured at the sizes beside its own; product_us: of the product before it, if not in that."""
    found = 0.0
    for kind, size in calls:
        us = links.collective_us(KNOWN[KINDS[kind]], RANKS, 1, size, RANKS)
        assert us is not None
        found += us + product_us
    return found / 1e3


def measure(*, smoke: bool = False) -> list[Row]:
    """Two rows for each job, on this machine."""
    return rows_of("one host", occasions("composed", smoke=smoke))


def occasions(name: str, *, smoke: bool, address: str = "", nodes: Sequence[Sequence[str]] = ((),)) -> Steps:
    """The results of each occasion; first those of an earlier call of this name and commit that was interrupted."""
    kept = ROOT / ".cache" / "performance" / f"{name}.json"
    commit = revision(ROOT, ()).name or ""
    found = [] if smoke else _kept(kept, commit)
    while len(found) < (1 if smoke else OCCASIONS):
        its = measured_by_ranks(
            "tests.performance.composed", _MARK,
            ranks=RANKS, smoke=smoke, timeout_s=400, address=address, nodes=nodes,
        )  # fmt: skip
        found.append(its)
        if not smoke:
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, json.dumps({"commit": commit, "occasions": found}))
            print(f"  {name}: occasion {len(found)} of {OCCASIONS}", flush=True)
    if not smoke:
        kept.unlink()
    return found


def _kept(path: Path, commit: str) -> Steps:
    """The occasions that a file keeps, none if another commit made them."""
    found = json.loads(path.read_text()) if path.is_file() else {}
    return found["occasions"] if isinstance(found, dict) and found.get("commit") == commit else []


def rows_of(place: str, found: Sequence[Mapping[str, Any]]) -> list[Row]:
    """Two rows for each job, one for each way to measure the parts; the ratio is predicted over measured."""
    rows = []
    links = {way: [links_of(each[way]) for each in found] for way in (SUITE, LOOPS)}
    for job in JOBS:
        calls = calls_of(job)
        took = [statistics.median(each["jobs"][job]) / 1e3 for each in found]
        spread = 100 * (max(took) - min(took)) / statistics.median(took)
        for way in (SUITE, LOOPS):
            ms = [
                predicted_ms(calls, its, statistics.median(each["product_us"]) if way == SUITE else 0.0)
                for each, its in zip(found, links[way], strict=True)
            ]
            ratios = [its / measured for its, measured in zip(ms, took, strict=True)]
            errors = [100 * (ratio - 1) for ratio in ratios]
            error = statistics.median(errors)
            said = ", ".join(f"{each:+.1f}" for each in errors)
            rows.append(
                Row(
                    what=f"an iteration's communication from its parts by {way}: {job}, 4 gloo ranks on {place}",
                    measured=f"{statistics.median(ms):.1f} ms predicted ({error:+.1f} %)",
                    baseline=f"{statistics.median(took):.1f} ms measured (spread {spread:.1f} %)",
                    ratio=statistics.median(ratios),
                    goal=f"within {GOAL_PERCENT:g} %, each within {WORST_PERCENT:g} % or 1.5 times the spread ({said})",
                    met=abs(error) <= GOAL_PERCENT and max(map(abs, errors)) <= max(WORST_PERCENT, 1.5 * spread),
                )
            )
    return rows


def _blocks_us(run: Callable[[], object], calls: int, blocks: int) -> list[float]:
    """Microseconds of a call, the mean of each block, after one call that does not count; blocks follow at once."""
    import torch.distributed as dist

    dist.barrier()
    run()
    stamps = [time.perf_counter()]
    for _ in range(blocks):
        for _ in range(calls):
            run()
        stamps.append(time.perf_counter())
    return [1e6 * (end - begin) / calls for begin, end in pairwise(stamps)]


class _Rank:
    """One of the ranks, with its buffers: an arena for the executor's calls, a matrix for products."""

    def __init__(self, team: "Team", effort: Effort) -> None:
        import torch

        self.team, self.effort = team, effort
        self.arena = torch.zeros(4 * SIZES[-1], dtype=torch.uint8)
        self.matrix, self.result = torch.rand(WIDTH, WIDTH), torch.empty(WIDTH, WIDTH)

    def product(self) -> None:
        import torch

        torch.mm(self.matrix, self.matrix, out=self.result)

    def after_products(self, calls: Calls) -> Callable[[], None]:
        """The calls, each after a product."""
        from training.benchmarks.aicb.pytorch.running.operations import BoundCall
        from workloads.rows.calls import Call
        from workloads.rows.ranks import Ranks

        everyone = Ranks.of(self.team.ranks)
        bound = [
            BoundCall(Call(kind, "all", everyone, "float32", size, ""), self.team, self.arena, 0)
            for kind, size in calls
        ]
        issues = [each.issue(is_async=False) for each in bound]

        def run() -> None:
            for issue in issues:
                self.product()
                issue()

        return run

    def loops(self) -> Iterator[dict[str, Any]]:
        """Of each collective and size a step for each block, with the product."""
        for kind, name in KINDS.items():
            for size in SIZES:
                step = {"collective": name, "world_size": RANKS, "size_bytes": size}
                for us in _blocks_us(self.after_products([(kind, size)]), self._calls(size), self.effort.blocks):
                    yield step | {"time_us": {"p50": us}}

    def suite(self) -> Iterator[dict[str, Any]]:
        """A step of the network suite for each collective and size, whose compute is the product."""
        from training.benchmarks.network.pytorch.config import Config
        from training.benchmarks.network.pytorch.measuring.stepping import result
        from training.benchmarks.network.pytorch.measuring.timing import measure as timed
        from training.benchmarks.network.pytorch.operations.variants import Variant, created

        for name in KINDS.values():
            variant = Variant(in_place=name == "all_reduce", after_compute_ms=COMPUTE_MS)
            for size in SIZES:
                iterations = 2 * self._calls(size)
                config = Config(collective=name, iterations=iterations, warmup_iterations=1, check=False)
                collective = created(config, self.team, variant)
                collective.prepare(size)
                found = timed(collective, self.team, config, self.product)
                yield result(config, self.team, size, found, variant=variant)

    def turn(self, found: dict[str, Any]) -> None:
        """Measure the parts, then the jobs, and add what was found."""
        effort = self.effort
        found.setdefault("product_us", []).extend(_blocks_us(self.product, 10 * effort.calls, effort.blocks))
        found.setdefault(SUITE, []).extend(self.suite())
        found.setdefault(LOOPS, []).extend(self.loops())
        for job in JOBS:
            calls = calls_of(job)
            iterations = -(-effort.calls // len(calls))
            its = _blocks_us(self.after_products(calls), iterations, effort.blocks)
            found.setdefault("jobs", {}).setdefault(job, []).extend(its)

    def _calls(self, size: int) -> int:
        """Calls of a block: fewer of large messages."""
        return max(min(2, self.effort.calls), self.effort.calls >> max(0, size.bit_length() - 19) // 2)


def _main() -> None:
    """One rank of the run that `occasions` starts."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[int(os.environ["RANK"]) % len(cores)]})  # before torch starts threads
    import torch

    from training.benchmarks.driver.workload.process_group import init
    from training.benchmarks.driver.workload.team import Team

    torch.set_num_threads(1)
    effort = SMOKE if SMOKE_OPTION in sys.argv else FULL
    with init("gloo", timeout_s=300) as group:
        rank = _Rank(Team.world(group), effort)
        found: dict[str, Any] = {}
        for _ in range(effort.turns):
            rank.turn(found)
        if group.placement.rank == 0:
            print(_MARK + json.dumps(found), flush=True)


if __name__ == "__main__":
    _main()
