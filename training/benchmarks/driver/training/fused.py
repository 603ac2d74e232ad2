"""Which libraries of fused kernels this Python has. Presence proves nothing: each is imported, in its own process."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from collections.abc import Iterable

# Distribution and the modules whose import proves it. PyPI's apex is another project: only NVIDIA's has these modules.
LIBRARIES = {
    "flash_attn": ("flash_attn",),
    "apex": ("apex.optimizers", "amp_C"),
    "transformer_engine": ("transformer_engine.pytorch",),
}
UNUSABLE = "unusable"
_IMPORT_SECONDS = 120


def detect(names: Iterable[str]) -> dict[str, str | None]:
    """Version of each of these LIBRARIES that imports, "unusable: <why>" for one that does not, None for one that is
    not there.
    """
    return {name: _version(name, LIBRARIES[name]) for name in names}


def _version(name: str, modules: tuple[str, ...]) -> str | None:
    if importlib.util.find_spec(name) is None:
        return None
    # An import that does not fit this torch may kill its process.
    imports = ", ".join((name, *modules))
    code = f"import {imports}\nprint(getattr({name}, '__version__', ''))"
    try:
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"{UNUSABLE}: importing it took more than {_IMPORT_SECONDS} s"
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        return f"{UNUSABLE}: {lines[-1]}"
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return (result.stdout.splitlines() or [""])[-1] or "unknown version"
