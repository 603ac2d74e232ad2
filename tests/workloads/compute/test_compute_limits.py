"""A database of compute times from anywhere is read up to a size and a number of rows, and no further."""

from pathlib import Path

import pytest

from workloads.compute import database
from workloads.compute.measurement import ComputeDataError, ComputeTime

ROWS = [
    ComputeTime("H100 SXM", "gemm", f"m={size} k=8 n=8", "bf16", "cublas", "torch 2.13.0", 5000.0, 0.02, 30, "us")
    for size in (8, 16)
]


@pytest.mark.parametrize(
    ("limit", "most", "says"),
    [("LARGEST_FILE", 4096, "bytes; at most 4096 are read"), ("MOST_ROWS", 1, "has more than 1 rows")],
)
def test_a_file_beyond_a_limit_is_refused(
    limit: str, most: int, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "times.db"
    database.write(path, ROWS)
    assert len(database.load(path)) == 2
    monkeypatch.setattr(database, limit, most)
    with pytest.raises(ComputeDataError, match=says):
        database.load(path)
