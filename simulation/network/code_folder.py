"""Says where compiled code of the simulation stands: beside the user's other caches, or where numba is told to."""

import hashlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path


def code_folder(sources: Path, names: Sequence[str], versions: str) -> Path:
    """The folder of what is compiled of the modules `names` in `sources`: another one for each state of these, and of
    what compiles them (`versions`).
    """
    texts = b"".join((sources / f"{name}.py").read_bytes() for name in names)
    name = hashlib.sha256(texts + f"{versions} {sys.version}".encode()).hexdigest()[:16]
    return Path(os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "clusterdyno" / "compiled") / name
