import pytest
import torch

from training.benchmarks.network.pytorch import pattern
from training.benchmarks.network.pytorch.config import ELEMENT_BYTES

DTYPES = [getattr(torch, name) for name in ELEMENT_BYTES]


@pytest.mark.parametrize("dtype", DTYPES)
def test_element_sizes_are_torchs(dtype: torch.dtype) -> None:
    assert ELEMENT_BYTES[str(dtype).removeprefix("torch.")] == dtype.itemsize


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("world_size", [1, 2, 3, 8, 64, 300])
def test_the_sum_is_exact_in_the_type_in_any_order(dtype: torch.dtype, world_size: int) -> None:
    parts = [pattern.sent(rank, world_size, dtype, seed=42) for rank in range(world_size)]
    expected = pattern.summed(world_size, dtype, seed=42)
    for order in (parts, parts[::-1]):
        total = torch.zeros(pattern.PERIOD, dtype=dtype)
        for part in order:
            total += part
        assert torch.equal(total, expected)
    assert expected.max() > 0


@pytest.mark.parametrize("world_size", [2, 8, 300])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_a_rank_that_counts_twice_in_place_of_another_is_seen(dtype: torch.dtype, world_size: int) -> None:
    parts = [pattern.sent(rank, world_size, torch.int64, seed=1) for rank in range(world_size)]
    typed = [pattern.sent(rank, world_size, dtype, seed=1).to(torch.int64) for rank in range(world_size)]
    assert all(not torch.equal(parts[0], part) for part in parts[1:])
    assert all(not torch.equal(typed[rank], typed[rank + 1]) for rank in range(world_size - 1))


def test_the_seed_changes_the_data() -> None:
    assert not torch.equal(pattern.sent(0, 2, torch.float32, 1), pattern.sent(0, 2, torch.float32, 2))


@pytest.mark.parametrize(
    "count", [1, 2, pattern.PERIOD - 1, pattern.PERIOD, pattern.PERIOD + 1, 5 * pattern.PERIOD + 7]
)
def test_a_filled_buffer_is_right_and_every_changed_element_is_counted(count: int) -> None:
    period = pattern.sent(1, 2, torch.float32, 42)
    buffer = torch.full((count,), -1.0)
    pattern.fill(buffer, period)
    assert buffer[count - 1] == period[(count - 1) % pattern.PERIOD]
    for chunk in (1, pattern.PERIOD, 10**6):
        assert int(pattern.count_wrong(buffer, period, chunk)) == 0
    buffer[0] += 1
    buffer[count - 1] = float("nan")
    for chunk in (1, pattern.PERIOD, 10**6):
        assert int(pattern.count_wrong(buffer, period, chunk)) == len({0, count - 1})


def test_blocks_at_the_wrong_place_are_seen() -> None:
    period = pattern.summed(2, torch.float32, 42)
    buffer = torch.empty(1 << 18)
    pattern.fill(buffer, period)
    swapped = torch.cat([buffer[1 << 17 :], buffer[: 1 << 17]])
    assert int(pattern.count_wrong(swapped, period, 1 << 20)) > 200_000
