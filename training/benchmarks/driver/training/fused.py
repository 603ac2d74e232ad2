"""Which libraries of fused kernels this Python has. Presence proves nothing: each is imported, in its own process."""

import importlib.metadata
import importlib.util
import subprocess
import sys

# Distribution and the modules whose import proves it. PyPI's apex is another project: only NVIDIA's has these modules.
_LIBRARIES = {
    "flash_attn": ("flash_attn",),
    "apex": ("apex.optimizers", "amp_C"),
    "transformer_engine": ("transformer_engine.pytorch",),
}
_IMPORT_SECONDS = 120


def detect() -> dict[str, str | None]:
    """Version of each library that imports, "unusable: <why>" for one that does not, None for one that is not there."""
    return {name: _version(name, modules) for name, modules in _LIBRARIES.items()}


def _version(name: str, modules: tuple[str, ...]) -> str | None:
    if importlib.util.find_spec(name) is None:
        return None
    # An import that does not fit this torch may kill its process.
    code = "; ".join(f"import {module}" for module in modules)
    try:
        result = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=_IMPORT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return f"unusable: importing it took more than {_IMPORT_SECONDS} s"
    if result.returncode:
        lines = result.stderr.strip().splitlines() or [f"exit code {result.returncode}"]
        return f"unusable: {lines[-1]}"
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "unknown version"
