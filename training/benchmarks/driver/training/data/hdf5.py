"""HDF5 files of samples: checked by their headers, read one file at a time. Needs h5py; synthetic data does not.

Needs no torch.
"""

import contextlib
import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.micro_batches import Indices, Numbers
from training.benchmarks.driver.training.data.shared_shards import SharedShards
from training.benchmarks.driver.workload.usage import UnusableSettingsError

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
    """Check that all values of `array` (any shape) are at least 0 and below `limit`; `setting` names the limit's
    origin.

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
