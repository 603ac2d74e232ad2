"""The memory test: what it takes of a device with little memory, lost content is seen, a host keeps half of its own."""

import pytest
import torch

from training.benchmarks.base.pytorch import capacity
from training.benchmarks.base.pytorch.capacity import CPU_BYTES, SMALLEST, Capacity, limit_of
from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.driver.workload.placement import Placement
from training.benchmarks.driver.workload.process_group import ProcessGroup
from training.benchmarks.driver.workload.usage import UnusableSettingsError

CPU = torch.device("cpu")


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes of a device that is the host's memory with less room."""
    room = 7 * SMALLEST + 12345
    empty = torch.empty
    taken: list[int] = []

    def limited(count: int, **options: object) -> torch.Tensor:
        if sum(taken) + 8 * count > room:
            raise torch.OutOfMemoryError("no room")
        taken.append(8 * count)
        return empty(count, dtype=torch.int64)

    monkeypatch.setattr(torch, "empty", limited)
    return room


def test_all_of_a_device_is_taken_up_to_the_smallest_piece(small_device: int) -> None:
    probe = Capacity(CPU, None)
    assert small_device - SMALLEST < probe.take() <= small_device
    assert probe.is_correct()
    probe._pieces[-1][-1] += 1
    assert not probe.is_correct(), "a number that is not there any more"


def test_a_piece_that_shares_the_memory_of_another_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = torch.empty(SMALLEST // 8, dtype=torch.int64)
    monkeypatch.setattr(torch, "empty", lambda count, **options: shared[:count])
    probe = Capacity(CPU, 2 * SMALLEST)
    assert probe.take() == 2 * SMALLEST
    assert not probe.is_correct()


def test_a_bound_is_kept_and_everything_is_given_back() -> None:
    probe = Capacity(CPU, 3 * SMALLEST)
    assert probe.take() == 3 * SMALLEST
    assert probe.is_correct()
    probe.release()
    assert not probe._pieces and not probe.is_correct(), "nothing is held, so nothing is right"


def _group(ranks: int) -> ProcessGroup:
    placement = Placement(rank=0, world_size=ranks, local_rank=0, local_world_size=ranks, nnodes=1)
    return ProcessGroup(device=CPU, placement=placement, backend="gloo")


def _config(**settings: int) -> Config:
    return Config.model_validate({"tests": ["memory_capacity"], **settings})


def test_a_host_keeps_half_of_its_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity, "available_bytes", lambda: 4 * CPU_BYTES)
    assert limit_of(_config(), _group(2)) == CPU_BYTES
    with pytest.raises(UnusableSettingsError, match=r"capacity_bytes = 268435456: 4 ranks would take 1.07 GB"):
        limit_of(_config(), _group(4))
    with pytest.raises(UnusableSettingsError, match="allowed: half of that, 268435456 each"):
        limit_of(_config(capacity_bytes=CPU_BYTES + 1), _group(2))
    monkeypatch.setattr(capacity, "available_bytes", lambda: None)
    with pytest.raises(UnusableSettingsError, match="does not tell how much memory is free"):
        limit_of(_config(), _group(1))
