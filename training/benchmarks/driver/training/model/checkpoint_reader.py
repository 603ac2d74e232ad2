"""Reads a checkpoint of torch.distributed.checkpoint without executing anything that it holds.

torch's reader unpickles `.metadata`, and its planner every value that is no tensor, without restrictions: whoever can
write to the folder could run code in the ranks. Here only the classes that such a checkpoint consists of are made.
"""

import io
import os
import pickle
from pathlib import PurePath
from typing import IO, Any

import torch
from torch.distributed.checkpoint import metadata as parts
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, _StorageInfo
from torch.distributed.checkpoint.planner import ReadItem

METADATA = ".metadata"
_CLASSES = frozenset(
    {
        *((parts.__name__, name) for name in ("BytesStorageMetadata", "ChunkStorageMetadata", "Metadata")),
        *((parts.__name__, name) for name in ("MetadataIndex", "StorageMeta", "TensorProperties")),
        *((parts.__name__, name) for name in ("TensorStorageMetadata", "_MEM_FORMAT_ENCODING")),
        (_StorageInfo.__module__, _StorageInfo.__name__),
        ("collections", "OrderedDict"),
        ("pathlib", "PosixPath"),
        ("pathlib._local", "PosixPath"),  # Python 3.13
        ("torch", "Size"),
        ("torch.serialization", "_get_layout"),
    }
)


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """The class of that name."""
        if (module, name) in _CLASSES or (
            module == "torch" and isinstance(vars(torch).get(name), torch.dtype | torch.layout | torch.memory_format)
        ):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{METADATA} names {module}.{name}, which is no part of a checkpoint")


class SafeReader(FileSystemReader):
    """A FileSystemReader whose metadata is made of a checkpoint's own classes and leads to no other folder."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> parts.Metadata:
        """The checkpoint's metadata, of its file `.metadata`.

        Raises:
            pickle.UnpicklingError: `.metadata` holds anything else.
        """
        with open(os.path.join(self.path, METADATA), "rb") as file:  # noqa: PTH118, PTH123 - torch's path may be a str
            metadata = _metadata(file)
        metadata.storage_meta = metadata.storage_meta or parts.StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class SafePlanner(DefaultLoadPlanner):
    """A DefaultLoadPlanner that takes numbers, texts, containers of them and tensors, and nothing else."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Take a value that is no tensor: a number, a text or a container of such.

        Raises:
            pickle.UnpicklingError: the value is of another class.
        """
        plain = io.BytesIO()
        try:
            torch.save(torch.load(value, weights_only=True), plain)  # what torch's planner then unpickles is our own
        except pickle.UnpicklingError as error:
            raise pickle.UnpicklingError(f"{read_item.storage_index.fqn}: {refused(error)}") from error
        plain.seek(0)
        super().load_bytes(read_item, plain)


def refused(error: Exception) -> str:
    """The refusal of torch's restricted unpickler in short; its own message fills a page."""
    return str(error).partition("WeightsUnpickler error: ")[2].partition(". Please")[0] or repr(error)


def _metadata(file: IO[bytes]) -> parts.Metadata:
    try:
        found = _Unpickler(file).load()
        names = [info.relative_path for info in found.storage_data.values()]
    except (AttributeError, TypeError, ValueError, LookupError, EOFError, MemoryError, RecursionError) as error:
        raise pickle.UnpicklingError(f"{METADATA} is no checkpoint's: {error!r}") from error
    if not isinstance(found, parts.Metadata):
        raise pickle.UnpicklingError(f"{METADATA} is no checkpoint's: it holds a {type(found).__name__}")
    for name in names:
        if not isinstance(name, str) or name in ("", "..") or PurePath(name).name != name:
            raise pickle.UnpicklingError(f"{METADATA} leads out of its folder: {str(name)[:200]!r}")
    return found
