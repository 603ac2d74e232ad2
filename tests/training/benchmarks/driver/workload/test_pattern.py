from itertools import combinations

import pytest
import torch

from training.benchmarks.driver.workload import pattern
from training.benchmarks.driver.workload.pattern import COLUMNS, Messages
from training.benchmarks.network.pytorch.choices import ELEMENT_BYTES

CPU = torch.device("cpu")
FP8 = [torch.float8_e4m3fn, torch.float8_e5m2]
DTYPES = [*{getattr(torch, name) for name in ELEMENT_BYTES}.difference(FP8), *FP8]
COUNTS = [1, 2, COLUMNS - 1, COLUMNS, COLUMNS + 1, 5 * COLUMNS + 7]


@pytest.mark.parametrize("name", ELEMENT_BYTES)
def test_element_sizes_are_torchs(name: str) -> None:
    assert ELEMENT_BYTES[name] == getattr(torch, name).itemsize


def _bits(data: pattern.Data, dtype: torch.dtype, count: int) -> torch.Tensor:
    return data.values(0, count).view(pattern.BITS[dtype.itemsize])


@pytest.mark.parametrize("dtype", DTYPES)
def test_another_source_or_iteration_differs_in_every_element_another_destination_in_most(dtype: torch.dtype) -> None:
    messages = Messages(dtype, CPU, seed=42, count=1000)
    for axis in range(3):
        places = [tuple(n if place == axis else 5 for place in range(3)) for n in range(60)]
        found = [_bits(messages.between(*place), dtype, 1000) for place in places]
        equal = sum(int((one == other).sum()) for one, other in combinations(found, 2))
        assert equal == 0 if axis != 1 else equal < 0.03 * 1000 * 60 * 59 / 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_ranks_differ_from_each_other_also_in_small_types(dtype: torch.dtype) -> None:
    messages = Messages(dtype, CPU, seed=42, count=64)
    ranks = [*range(300), 512, 1024, 8191]
    sent = {tuple(_bits(messages.between(rank, 0, 1), dtype, 64).tolist()) for rank in ranks}
    pairs = {tuple(_bits(messages.between(a, b, 1), dtype, 64).tolist()) for a in range(16) for b in range(16)}
    assert (len(sent), len(pairs)) == (len(ranks), 256)


@pytest.mark.parametrize("dtype", DTYPES)
def test_data_is_finite_and_uses_the_type(dtype: torch.dtype) -> None:
    found = Messages(dtype, CPU, seed=1, count=50_000).between(3, 4, 5).values(0, 50_000)
    if dtype.is_floating_point:
        assert torch.isfinite(found.to(torch.float64)).all()
    assert len(set(found.view(pattern.BITS[dtype.itemsize]).tolist())) >= min(64, 1 << 8 * dtype.itemsize - 2)


def test_seed_and_count_change_the_data() -> None:
    first = Messages(torch.float32, CPU, seed=1, count=100).between(0, 0, 1).values(0, 100)
    for seed, count in ((2, 100), (1, 200)):
        other = Messages(torch.float32, CPU, seed=seed, count=count).between(0, 0, 1).values(0, 100)
        assert (first != other).sum() >= 99


def test_the_data_is_the_same_on_every_host_and_in_every_version() -> None:
    """All ranks make the data for themselves: a difference would look like wrong data."""
    found = _bits(Messages(torch.int32, CPU, seed=42, count=10).between(1, 2, 3), torch.int32, 3)
    assert found.tolist() == [2146119130, 196287606, -1703562375]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("begin", [0, 1, COLUMNS + 3])
def test_a_filled_buffer_is_right_and_every_changed_element_is_counted(
    monkeypatch: pytest.MonkeyPatch, count: int, begin: int
) -> None:
    data = Messages(torch.float32, CPU, seed=42, count=count + begin).between(1, 2, 3)
    whole = data.values(0, begin + count)
    for chunk in (COLUMNS, 128 * COLUMNS):
        monkeypatch.setattr(pattern, "CHUNK_ELEMENTS", chunk)
        buffer = torch.full((count,), -1.0)
        pattern.fill(buffer, data, begin)
        assert torch.equal(buffer, whole[begin:])
        assert int(pattern.count_wrong(buffer, data, begin)) == 0
        buffer[0] = float("nan")
        buffer.view(torch.int32)[count - 1] ^= 1  # the lowest bit
        assert int(pattern.count_wrong(buffer, data, begin)) == len({0, count - 1})


def test_with_a_tolerance_close_numbers_are_right_and_others_are_not() -> None:
    data = Messages(torch.float32, CPU, seed=42, count=4).between(1, 2, 3)
    right = data.values(0, 4)
    close, far = right * (1 + 1e-3), right * (1 - 3e-3)
    assert int(pattern.count_wrong(close, data, 0, 2e-3)) == 0
    assert int(pattern.count_wrong(far, data, 0, 2e-3)) == 4
    assert int(pattern.count_wrong(torch.full_like(right, float("nan")), data, 0, 2e-3)) == 4


@pytest.mark.parametrize("block", [1 << 10, COLUMNS])
def test_blocks_at_the_wrong_place_are_seen(block: int) -> None:
    data = Messages(torch.int8, CPU, seed=42, count=8 * block).between(0, 1, 1)
    buffer = data.values(0, 8 * block)
    swapped = torch.cat([buffer[block : 2 * block], buffer[:block], buffer[2 * block :]])
    assert int(pattern.count_wrong(swapped, data)) > 1.9 * block
