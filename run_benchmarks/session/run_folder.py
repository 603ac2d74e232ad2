"""Makes the folder of a run: its name, which is the run's id, and the token of the result folder it is in."""

import contextlib
import os
import re
import secrets
import time
from pathlib import Path

from common.reading import read_bounded
from run_benchmarks.console.command_line import DEFAULT_RESULTS
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.settings.settings import Settings

RUN_ID = re.compile(r"run[0-9]{14}")
OWNER_FILE = ".owner"
OWNER_BYTES, MAX_OWNER_BYTES = 4, 64
OWNER = re.compile(rf"[0-9a-f]{{{2 * OWNER_BYTES}}}")
FOLDER_MODE = 0o750


def new_run_id() -> str:
    """`run` and the local time, as in `run20261121191924`."""
    return time.strftime("run%Y%m%d%H%M%S")


def new_run_folder(root: Path) -> Path:
    """Make the folder of a new run; a second run in the same second gets the next free name.

    Raises:
        OSError: the folder cannot be made.
    """
    root.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    while True:
        folder = root / new_run_id()
        try:
            folder.mkdir(mode=FOLDER_MODE)
        except FileExistsError:
            time.sleep(0.1)
        else:
            return folder


def owner_of(root: Path) -> str:
    """The token that distinguishes this result folder's runs from all others on the hosts; made once.

    Raises:
        OSError: the file cannot be read or written.
        InputProblems: it holds no token.
    """
    path = root / OWNER_FILE
    with contextlib.suppress(FileExistsError):
        temporary = root / f"{OWNER_FILE}.{secrets.token_hex(OWNER_BYTES)}"
        temporary.write_text(secrets.token_hex(OWNER_BYTES), encoding="ascii")
        try:
            os.link(temporary, path)  # unlike a rename, fails where another controller was first
        finally:
            temporary.unlink()
    token = read_bounded(path, MAX_OWNER_BYTES).decode("ascii", "replace").strip()
    if not OWNER.fullmatch(token):  # it becomes part of names on the hosts
        raise InputProblems([Problem(str(path), "", token, "8 hexadecimal digits, as a controller writes them")])
    return token


def result_root(settings: Settings) -> Path:
    """Where runs are kept on the head node."""
    return Path(settings.test.FLAGPERF_LOG_PATH_HOST or DEFAULT_RESULTS)
