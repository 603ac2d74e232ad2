"""What a test file imports by way of others is found without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imports import ROOT, loads


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import torch.distributed as dist\n", True),
        ("from training.benchmarks.driver.training.model import layers\n", True),
        ("try:\n    import torch\nexcept ImportError:\n    pass\n", True),
        ("def late():\n    import torch\n", False),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\n", False),
        ("from run_benchmarks.plan import planner\n", False),
    ],
    ids=["itself", "by way of a module", "tried", "in a function", "for types", "none"],
)
def test_whether_a_file_imports_torch(text: str, found: bool, tmp_path: Path) -> None:
    assert (ROOT / "training/benchmarks/driver/training/model/layers.py").is_file()
    file = tmp_path / "test_made.py"
    file.write_text(text)
    assert loads(file, "torch") is found


def test_measurements_are_listed_without_torch() -> None:
    """Else `make coverage` cannot collect tests/performance/test_smoke.py, which imports each of them by name."""
    files = [file for file in (ROOT / "tests/performance").glob("*.py") if "\ndef measure(" in file.read_text()]
    assert len(files) > 10
    assert [file.name for file in files if loads(file, "torch")] == []
