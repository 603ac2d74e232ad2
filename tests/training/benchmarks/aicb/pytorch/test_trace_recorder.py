"""Tests how the tracer reads calls of torch that none of the recorded jobs makes."""

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from workloads.trace.recorder import READERS  # noqa: E402 # needs torch


@pytest.mark.parametrize(
    ("call", "whole", "own"),
    [("gather_", "output_tensors", "input_tensors"), ("scatter_", "input_tensors", "output_tensors")],
)
def test_a_gather_and_a_scatter_are_of_one_size_on_every_rank(call: str, whole: str, own: str) -> None:
    """Only the root has the list of all parts."""
    group: Any = SimpleNamespace(size=lambda: 4)
    part = torch.zeros(10)
    root = READERS[call]({own: [part], whole: [[part] * 4], "root_rank": 0}, group)
    other = READERS[call]({own: [part], whole: [], "root_rank": 0}, group)
    assert (root[0], root[2], root[3]) == (other[0], other[2], other[3]) == (call[:-1], 160, {"peer": 0})
