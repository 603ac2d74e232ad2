"""Signs what a controller writes into a journal with this user's key, so that a received journal is told from an own.

`resume` and `clean` execute the files that a journal names and apply the changes in it. A result folder may come from
anybody: they do so only if the journal's last start bears the code (HMAC-SHA256) of a key that never leaves the user's
state folder on the head node, and belongs to the user and to the run of that name.
"""

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from pathlib import Path

from common.reading import open_regular
from run_benchmarks.state.journal import JOURNAL_FILE, RunStarted

KEY_FILE = Path("clusterdyno") / "journal.key"
KEY_BYTES = 32
OTHERS = stat.S_IRWXG | stat.S_IRWXO


def signed(event: RunStarted) -> RunStarted:
    """The event with its code; without one if no key can be kept here (a later command then asks for the files)."""
    with contextlib.suppress(OSError, RuntimeError):
        return event.model_copy(update={"hmac_sha256": _code(event, _made_key(_key_file()))})
    return event


def is_own(folder: Path, started: RunStarted) -> bool:
    """Whether a controller of this user and head node began the run in `folder`, and wrote what `started` holds."""
    if started.hmac_sha256 is None or started.run_id != folder.name:
        return False
    try:
        if not all(_is_mine(path) for path in (folder, folder / JOURNAL_FILE)):
            return False
        key = _read_key(_key_file())
    except (OSError, RuntimeError):
        return False
    return hmac.compare_digest(started.hmac_sha256.encode(), _code(started, key).encode())


def _code(event: RunStarted, key: bytes) -> str:
    text = event.model_dump_json(
        exclude={"hmac_sha256"}, exclude_none=True
    )  # a later version adds fields that are None
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def _is_mine(path: Path) -> bool:
    status = path.lstat()
    return status.st_uid == os.geteuid() and not stat.S_ISLNK(status.st_mode) and not status.st_mode & stat.S_IWOTH


def _key_file() -> Path:
    """The key's file: below $XDG_STATE_HOME or ~/.local/state."""
    state = os.environ.get("XDG_STATE_HOME", "")
    return (Path(state) if Path(state).is_absolute() else Path.home() / ".local" / "state") / KEY_FILE


def _read_key(path: Path) -> bytes:
    """The key of a file."""
    with open_regular(path) as file:
        status = os.fstat(file.fileno())
        key = file.read(KEY_BYTES + 1)
    if len(key) != KEY_BYTES or status.st_uid != os.geteuid() or status.st_mode & OTHERS:
        raise PermissionError(f"{path}: not a key of {KEY_BYTES} bytes that its owner alone can read")
    return key


def _made_key(path: Path) -> bytes:
    """The key, made if there is none yet; the first of several controllers that make it at once wins."""
    with contextlib.suppress(FileNotFoundError):
        return _read_key(path)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(KEY_BYTES))
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        Path(temporary).unlink()
    return _read_key(path)
