"""A copy of the repository with two benchmarks more: ranks that work side by side until one breaks
(tests/cluster/faulty), and ranks that do nothing, need no torch, and may break, too (tests/cluster/light).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests import product

BENCHMARKS = ("faulty", "light")
CONFIG = "config_CPU"
# Cases of the light benchmark: a few steps, more than any test waits for, until a file GO_ON is in the log folder.
LIGHT: dict[str, object] = {"model": "light", "framework": "pytorch", "config": CONFIG}
LONG: dict[str, object] = {**LIGHT, "overrides": {"steps": 100_000_000}}
WAITS: dict[str, object] = {**LIGHT, "overrides": {"waits": True}}


def project(folder: Path, environment: Mapping[str, Any] | None = None) -> Path:
    """Make the copy in `folder`; cases of the faulty one get these environment variables from the case's own file."""
    product.copy(folder)
    for name in BENCHMARKS:
        product.copy_folder(Path(__file__).parent / name, folder / "training/benchmarks" / name)
        config = folder / f"vendors/cpu/{name}-pytorch/config/{CONFIG}.py"
        config.parent.mkdir(parents=True)
        config.write_text("steps = 50\n" if name == "faulty" else "steps = 5\n")
    lines = "".join(f"{name}={value}\n" for name, value in (environment or {}).items())
    (folder / "vendors/cpu/faulty-pytorch/config/environment_variables.env").write_text(lines)
    return folder
