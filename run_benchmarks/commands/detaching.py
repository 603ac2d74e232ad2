"""Detaches a run from its terminal (`run --detach`, `resume --detach`)."""

import os
import sys
from pathlib import Path

CONSOLE_FILE = "console.log"


def go_to_the_background(folder: Path) -> bool:
    """Fork; True in the child, which has no terminal and writes to console.log. No thread runs yet."""
    sys.stdout.flush()
    sys.stderr.flush()
    if os.fork() != 0:
        return False
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(folder / CONSOLE_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    for source, targets in ((null, (0,)), (output, (1, 2))):
        for target in targets:
            os.dup2(source, target)
        os.close(source)
    return True
