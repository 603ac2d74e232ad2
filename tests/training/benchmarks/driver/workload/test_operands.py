"""The results of reductions are known exactly: reduced in any order, in the type itself, nothing is rounded."""

from itertools import product

import numpy as np
import pytest
import torch

from common.bandwidth import Op
from tests.tiers import samples
from training.benchmarks.driver.workload import operands, pattern
from training.benchmarks.driver.workload.operands import OPS, Operands
from training.benchmarks.driver.workload.pattern import COLUMNS

CPU = torch.device("cpu")
COUNT = COLUMNS + 100
RANKS = [1, 2, 3, 16, 64]
CASES = [case for case in product(operands.RANGES, OPS, RANKS) if operands.refusal(case[1], case[0], case[2]) is None]


def reduced(parts: list[torch.Tensor], op: Op, dtype: torch.dtype) -> torch.Tensor:
    """The reduction of these parts one after the other, each partial result in `dtype`, as libraries compute it."""
    wide = torch.int64 if not dtype.is_floating_point else torch.float64
    if op == "avg" and dtype.is_floating_point:
        inverse = torch.tensor(1 / len(parts), dtype=torch.float64).to(dtype).to(wide)
        parts = [(part.to(wide) * inverse).to(dtype) for part in parts]
    join = {"prod": torch.mul, "min": torch.minimum, "max": torch.maximum}.get(op, torch.add)
    result = parts[0]
    for part in parts[1:]:
        result = join(result.to(wide), part.to(wide)).to(dtype)
    if op == "avg" and not dtype.is_floating_point:
        result = torch.div(result.to(wide), len(parts), rounding_mode="trunc").to(dtype)
    return result


@pytest.mark.parametrize("dtype", operands.RANGES, ids=str)
def test_results_are_exact_in_any_order_and_never_those_of_the_iteration_before(dtype: torch.dtype) -> None:
    random = np.random.default_rng(samples(1, 20))
    for _, op, ranks in (case for case in CASES if case[0] is dtype):
        made = Operands(op, dtype, CPU, ranks=ranks, seed=42, count=COUNT)
        before = None
        for iteration in (1, 2):
            parts = [made.contribution(rank, iteration).values(0, COUNT) for rank in range(ranks)]
            found = reduced([parts[rank] for rank in random.permutation(ranks)], op, dtype)
            wrong = int(pattern.count_wrong(found, made.result(iteration), 0, made.tolerance))
            assert wrong == 0, (op, ranks, iteration)
            if before is not None:
                stale = int(pattern.count_wrong(before, made.result(iteration), 0, made.tolerance))
                assert stale == COUNT, (op, ranks)
            before = found


@pytest.mark.parametrize(("op", "dtype", "ranks", "least"), [
    ("sum", torch.bfloat16, 16, 500),
    ("sum", torch.bfloat16, 128, 300),
    ("sum", torch.float16, 128, 2000),
    ("sum", torch.int8, 128, 100),
    ("sum", torch.float8_e4m3fn, 64, 20),
    ("prod", torch.bfloat16, 16, 200),
    ("max", torch.float8_e5m2, 16, 16),
])  # fmt: skip
def test_elements_differ_from_each_other(op: Op, dtype: torch.dtype, ranks: int, least: int) -> None:
    """With numbers modulo a power of two the bf16 sums of 16 ranks would all be the same."""
    found = Operands(op, dtype, CPU, ranks=ranks, seed=42, count=COUNT).result(1).values(0, COUNT)
    assert len(set(found.to(torch.float64).tolist())) >= least


@pytest.mark.parametrize(("dtype", "op"), [(torch.float32, "sum"), (torch.int32, "sum"), (torch.int32, "avg")])
def test_each_rank_contributes_to_most_elements(dtype: torch.dtype, op: Op) -> None:
    made = Operands(op, dtype, CPU, ranks=16, seed=42, count=COUNT)
    for rank in range(16):
        assert (made.contribution(rank, 1).values(0, COUNT) != 0).float().mean() > 0.9


def test_only_the_mean_over_a_number_that_is_no_power_of_two_is_inexact() -> None:
    def tolerance(op: Op, dtype: torch.dtype, ranks: int) -> float:
        return Operands(op, dtype, CPU, ranks=ranks, seed=1, count=10).tolerance

    assert all(tolerance(op, dtype, ranks) == 0 for dtype, op, ranks in CASES if op != "avg" or ranks != 3)
    assert 0 < tolerance("avg", torch.float32, 3) < 1e-6
    assert 0 < tolerance("avg", torch.bfloat16, 3) < 0.02
    assert tolerance("avg", torch.int32, 3) == 0


def test_a_mean_whose_sum_leaves_the_type_is_refused() -> None:
    assert "int8" in str(operands.refusal("avg", torch.int8, 100))
    with pytest.raises(ValueError, match="cannot hold the sum of 100 ranks"):
        Operands("avg", torch.int8, CPU, ranks=100, seed=1, count=10)
    assert operands.refusal("avg", torch.int8, 16) is None
    assert operands.refusal("sum", torch.int8, 100) is None


@pytest.mark.parametrize("dtype", [dtype for dtype in operands.RANGES if dtype.is_floating_point], ids=str)
def test_one_more_changes_every_number(dtype: torch.dtype) -> None:
    for op, ranks in product(OPS, RANKS):
        found = Operands(op, dtype, CPU, ranks=ranks, seed=42, count=COUNT).result(1).values(0, COUNT)
        more = (found.to(torch.float64) + 1).to(dtype).to(torch.float64)
        assert (more != found.to(torch.float64)).all(), (op, ranks)
