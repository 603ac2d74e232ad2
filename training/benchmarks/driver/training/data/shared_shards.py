"""Shares decoded files of samples between the ranks of a node: one process decodes a file, all map its arrays.

Needs no torch.
"""

import contextlib
import fcntl
import hashlib
import multiprocessing
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.driver.launch.scratch import SCRATCH_ENV

Arrays = dict[str, NDArray[Any]]

# Decoded files that stay: all ranks read in the same order and are near each other.
KEPT = 4
# A file takes no more than this part of the space that is free.
_LARGEST_PART = 0.25


class SharedShards:
    """Decoded files in `folder`, which whoever made it removes at the end of the launch.

    At most KEPT files stay there, those that were asked for last; who has mapped one that is removed keeps it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "SharedShards | None":
        """Those of the launch that started this rank; None where no other process wants them: this is the node's only
        rank, and no worker of its loader.
        """
        scratch = environment.get(SCRATCH_ENV)
        is_alone = environment.get("LOCAL_WORLD_SIZE") == "1" and multiprocessing.parent_process() is None
        if scratch is None or is_alone or not Path(scratch).is_dir():
            return None
        return cls(Path(scratch) / "shards")

    def get(self, path: Path, decode: Callable[[Path], Arrays]) -> Arrays:
        """The arrays of the file `path`, read-only: mapped where a process of this node has decoded them, else by
        `decode`, which one process at a time calls for a file, and whose errors pass through.

        Where there is no space they are this process's own.
        """
        try:
            facts = path.stat()
            self._folder.mkdir(exist_ok=True)
        except OSError:
            return decode(path)
        identity = repr((str(path.absolute()), facts.st_size, facts.st_mtime_ns, facts.st_ino))
        decoded = self._folder / hashlib.sha256(identity.encode()).hexdigest()[:24]
        found = _mapped(decoded)
        if found is not None:
            return found
        with _locked(decoded.with_suffix(".lock")):
            return _mapped(decoded) or self._decoded(decoded, decode(path))

    def _decoded(self, target: Path, arrays: Arrays) -> Arrays:
        """`arrays`, kept as `target` where there is space for them, and mapped from there."""
        size = sum(array.nbytes for array in arrays.values())
        partial = target.with_suffix(".partial")
        try:
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            if size > _LARGEST_PART * shutil.disk_usage(self._folder).free:
                return arrays
            partial.mkdir()
            for name, array in arrays.items():
                np.save(partial / f"{name}.npy", array, allow_pickle=False)
            partial.rename(target)
        except OSError:
            shutil.rmtree(partial, ignore_errors=True)
            return arrays
        self._remove_oldest()
        return _mapped(target) or arrays

    def _remove_oldest(self) -> None:
        complete = [path for path in self._folder.iterdir() if path.is_dir() and not path.suffix]
        ages = {}
        for path in complete:
            with contextlib.suppress(OSError):
                ages[path] = path.stat().st_mtime_ns
        for path in sorted(ages, key=lambda path: ages[path])[:-KEPT]:
            leaving = path.with_suffix(f".{os.getpid()}.leaving")
            with contextlib.suppress(OSError):
                path.rename(leaving)
            shutil.rmtree(leaving, ignore_errors=True)


def _mapped(folder: Path) -> Arrays | None:
    """The arrays of a folder, mapped; None if it is not there, or goes away meanwhile."""
    try:
        found: Arrays = {}
        for file in sorted(folder.iterdir()):
            found[file.stem] = np.load(file, mmap_mode="r", allow_pickle=False)
        os.utime(folder)
    except (OSError, ValueError):
        return None
    return found or None


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    """Hold an exclusive lock, which the kernel frees when this process ends in whatever way."""
    with file.open("wb") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
