"""Builds a project from a page of the documents: a copy of packages, and the files that the page shows."""

import re
from collections.abc import Sequence
from pathlib import Path

from tests import product


def build(
    folder: Path, page: Path, files: Sequence[str], benchmark: str, packages: Sequence[str] = product.OF_A_RUN
) -> Path:
    """Copy `packages` into `folder`, which it returns, and write what the page's blocks of Python begin with the names
    of: exactly `files`, in this order. `benchmark` is the folder of the new benchmark's framework.
    """
    product.copy(folder, packages)
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert [name for name, _ in blocks] == [*files]
    for name, text in blocks:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for made in (folder / benchmark, (folder / benchmark).parent):
        (made / "__init__.py").touch()
    return folder
