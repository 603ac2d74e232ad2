"""Writes small text files whole or not at all: a reader sees the old file or the complete new one."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write `text` as UTF-8 under another name in the same folder and rename it to `path`.

    Raises:
        OSError: the file cannot be written; nothing is left of it.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        unfinished.write_text(text, encoding="utf-8")
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
