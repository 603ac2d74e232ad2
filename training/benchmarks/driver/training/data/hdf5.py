"""HDF5 files of samples: checked by their headers, read one file at a time. Needs h5py; synthetic data does not.

`SharedShards` shares decoded files between the ranks of a node: one decodes, all map. Needs no torch.
"""

import contextlib
import fcntl
import hashlib
import importlib
import multiprocessing
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.driver.launch.scratch import SCRATCH_ENV
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.micro_batches import Indices, Numbers
from training.benchmarks.driver.workload.usage import UnusableSettingsError

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
        """Those of this rank's launch; None where nobody else wants them: the node's only rank, no loader's worker."""
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


Array = NDArray[Any]

# Shards that a rank keeps in memory: the one it reads from, and the next one, for a batch that spans both.
_SHARDS_IN_MEMORY = 2
_SPARSE_PARTS = ("data", "indices", "indptr")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The h5py file at `path`, opened for reading.

    Raises:
        DataError: the file is missing or no HDF5, or reading from it fails inside the block.
    """
    try:
        h5py = importlib.import_module("h5py")
    except ImportError as error:
        raise UnusableSettingsError(f"{path}: reading HDF5 needs the Python package h5py: {error}") from error
    if not path.is_file():
        raise DataError(path, "no such file; expected HDF5")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, KeyError) as error:
        raise DataError(path, f"broken HDF5 file: {error}") from error


def shape_of(path: Path, file: Any, key: str) -> tuple[int, ...]:
    """Shape of the dataset or h5sparse group `key`.

    Raises:
        DataError: the file has no such dataset.
    """
    if key not in file:
        raise DataError(path, f"has no {key!r}; found {', '.join(sorted(file)) or 'nothing'}")
    found = file[key].attrs.get("h5sparse_shape") if hasattr(file[key], "keys") else file[key].shape
    if found is None:
        raise DataError(path, f"{key!r} is a group without h5sparse_shape")
    shape = tuple(int(size) for size in found)
    if not shape:
        raise DataError(path, f"{key!r} is a single value; expected an array")
    return shape


def dense(path: Path, file: Any, key: str) -> Array:
    """The whole of `key` as an array of integers with the shape of the dataset, in the smallest type that holds it.

    An h5sparse group (compressed sparse rows) is filled up with zeros.

    Raises:
        DataError: values are no whole numbers, or a group is broken.
    """
    shape = shape_of(path, file, key)
    node = file[key]
    if not hasattr(node, "keys"):
        return _integers(path, key, np.asarray(node[...]))
    kind = node.attrs.get("h5sparse_format")
    kind = kind.decode() if isinstance(kind, bytes) else kind
    if kind != "csr":
        raise DataError(path, f"{key!r} is stored as {kind!r}; expected 'csr'")
    values, columns, starts = (_integers(path, key, np.asarray(node[part][...])) for part in _SPARSE_PARTS)
    lengths = np.diff(starts)
    fits = len(starts) == shape[0] + 1 and len(columns) == len(values) == int(starts[-1]) and (lengths >= 0).all()
    if len(shape) != 2 or not fits:
        raise DataError(path, f"{key!r} has parts that do not fit its shape {shape}")
    if len(columns) and (columns.min() < 0 or columns.max() >= shape[1]):
        raise DataError(path, f"{key!r} has columns outside its shape {shape}")
    result = np.zeros(shape, dtype=_narrowest(values))
    result[np.repeat(np.arange(shape[0]), lengths), columns] = values
    return result


def _integers(path: Path, key: str, array: Array) -> Array:
    if array.dtype.kind in "iub":
        return array
    if array.dtype.kind != "f":
        raise DataError(path, f"{key!r} holds {array.dtype}; expected integers")
    wrong = np.argwhere(array != np.rint(array))
    if len(wrong):
        place = tuple(wrong[0])
        raise DataError(path, f"{key!r} has {array[place]} in row {place[0]}; expected integers")
    return array.astype(np.int64)


def _narrowest(values: Array) -> type[np.signedinteger[Any]]:
    """The smallest type that holds the values: files of a few GB in int64 would fill a host's memory, once per rank."""
    for kind in (np.int8, np.int16, np.int32):
        limits = np.iinfo(kind)
        if not len(values) or (values.min() >= limits.min and values.max() <= limits.max):
            return kind
    return np.int64


def check_values(path: Path, key: str, array: Array, limit: int, setting: str = "") -> None:
    """Check that all values of `array` (any shape) are at least 0 and below `limit`; `setting`: the limit's.

    Raises:
        DataError: a value is outside; the message names row and value.
    """
    wrong = np.argwhere((array < 0) | (array >= limit))
    if len(wrong):
        place = tuple(wrong[0])
        source = f" ({setting})" if setting else ""
        raise DataError(path, f"{key!r} has {array[place]} in row {place[0]}; expected 0 to {limit - 1}{source}")


class Shards(ABC):
    """Samples in several files. An epoch visits the files in random order, and the samples of each in random order.

    The first file is read at once, so that mistakes in the values, which usually affect all files, are found early. The
    ranks of a node, and their workers, share what one of them has decoded (shared_shards).
    """

    def __init__(self, paths: Sequence[Path], lengths: Sequence[int]) -> None:
        self._paths = list(paths)
        self._starts = np.concatenate([[0], np.cumsum(lengths)])
        self._shard = lru_cache(_SHARDS_IN_MEMORY)(self._load)
        self._shard(0)

    def _load(self, number: int) -> dict[str, Array]:
        shared = SharedShards.of(os.environ)
        path = self._paths[number]
        return self.load(path) if shared is None else shared.get(path, self.load)

    @abstractmethod
    def load(self, path: Path) -> dict[str, Array]:
        """All arrays of one file by name, each of shape (samples, ...).

        Raises:
            DataError: the file is missing or broken.
        """

    def __len__(self) -> int:
        return int(self._starts[-1])

    def rows(self, indices: Indices) -> list[tuple[dict[str, Array], int]]:
        """The samples of these indices, shape (n,): n pairs of the content of a file and the index in it."""
        shards = np.searchsorted(self._starts, indices, side="right") - 1
        # Shard by shard, so that a batch that spans several loads each once.
        rows: dict[int, tuple[dict[str, Array], int]] = {}
        for place in np.argsort(shards, kind="stable").tolist():
            shard = int(shards[place])
            rows[place] = (self._shard(shard), int(indices[place] - self._starts[shard]))
        return [rows[place] for place in range(len(indices))]

    def shuffled(self, permutation: Callable[[int], Numbers]) -> Numbers:
        """The numbers of all samples, shape (len,), file by file; `permutation` draws one of 0 to n - 1."""
        parts = []
        for shard in permutation(len(self._paths)).tolist():
            begin, end = int(self._starts[shard]), int(self._starts[shard + 1])
            parts.append(begin + permutation(end - begin))
        return np.concatenate(parts)

    def __getstate__(self) -> dict[str, Any]:
        """State for a worker process: everything except the shards in memory."""
        return {key: value for key, value in self.__dict__.items() if key != "_shard"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._shard = lru_cache(_SHARDS_IN_MEMORY)(self._load)
