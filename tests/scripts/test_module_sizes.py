"""No module of the product is longer than one concept takes: 700 lines."""

from pathlib import Path

import pytest

from tests.product import PACKAGES, ROOT

MAX_LINES = 700


def too_long(root: Path) -> dict[str, int]:
    """Lines of each module of the packages below `root` that has more than MAX_LINES."""
    files = [path for package in PACKAGES for path in (root / package).rglob("*.py")]
    lines = {str(path.relative_to(root)): path.read_bytes().count(b"\n") for path in files}
    return {name: count for name, count in lines.items() if count > MAX_LINES}


def test_no_module_is_too_long() -> None:
    assert too_long(ROOT) == {}


@pytest.mark.parametrize(("count", "found"), [(700, {}), (701, {"training/planted.py": 701})])
def test_a_long_module_is_noticed(tmp_path: Path, count: int, found: dict[str, int]) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "planted.py").write_text("pass\n" * count, encoding="utf-8")
    assert too_long(tmp_path) == found
