"""Makes the folder that the ranks of a launch share; removes it at the end, and those of launches that were killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Of the ranks' environment: the folder, which lives as long as the launch.
SCRATCH_ENV = "CLUSTERDYNO_SCRATCH"
_PREFIX, _ALIVE = "clusterdyno-", "alive.lock"


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder of this user alone in the folder for temporary files; its ranks find it by SCRATCH_ENV.

    Its owner holds a lock in it, which the kernel frees even after SIGKILL: the next launch removes what is left then.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / _ALIVE).open("wb") as alive:
            fcntl.flock(alive, fcntl.LOCK_EX)
            os.environ[SCRATCH_ENV] = name
            try:
                yield folder
            finally:
                os.environ.pop(SCRATCH_ENV, None)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*/{_ALIVE}"):
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.parent.is_symlink() or path.parent.stat().st_uid != os.getuid():
                continue
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # of a living launch: BlockingIOError
                shutil.rmtree(path.parent, ignore_errors=True)
