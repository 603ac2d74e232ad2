"""Takes the file of an execution trace apart: a sequence of messages, each after its length. It may be hostile."""

import contextlib
import gzip
import io
import itertools
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, BinaryIO

from common.reading import open_regular

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import Node

LONGEST_MESSAGE = 64 << 20  # bytes
LARGEST_FILE = 4 << 30  # bytes, unpacked
MOST_NODES = 20_000_000
_GZIP = b"\x1f\x8b"


class BrokenTraceError(ValueError):
    """The bytes are no execution trace; the message says where."""


@contextlib.contextmanager
def unpacked(path: Path) -> "Iterator[BinaryIO]":
    """The file, open for reading; one that is packed by gzip is unpacked as it is read.

    Raises:
        OSError: it cannot be opened, or is no regular file.
    """
    with open_regular(path) as file:
        if file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as inside, io.BufferedReader(inside) as source:
            yield source


def nodes(source: BinaryIO, schema: ModuleType) -> "Iterator[Node]":
    """The nodes of Chakra's `schema` (et_def_pb2) in a trace, one message in memory at a time, first the metadata.

    Raises:
        OSError: it cannot be read, or what gzip packed is broken.
        BrokenTraceError: the data ends within a message, a message is malformed, or the trace is too large.
    """
    from google.protobuf.message import DecodeError

    taken = 0
    for number in itertools.count():
        try:
            length = _varint(source)
            message_bytes = source.read(length) if length is not None and length <= LONGEST_MESSAGE else b""
        except (EOFError, zlib.error) as error:
            raise OSError(str(error)) from None
        if length is None:
            return
        if length > LONGEST_MESSAGE or len(message_bytes) < length:
            raise BrokenTraceError(f"ends within message {number}: it is cut off or no Chakra trace")
        taken += length
        if number > MOST_NODES:
            raise BrokenTraceError(f"has more than {MOST_NODES} nodes")
        if taken > LARGEST_FILE:
            raise BrokenTraceError(f"has more than {LARGEST_FILE} bytes where it is unpacked")
        message = schema.Node() if number else schema.GlobalMetadata()
        try:
            message.ParseFromString(message_bytes)
        except DecodeError:
            raise BrokenTraceError(f"message {number} is no node of a Chakra trace") from None
        if number and not length:
            raise BrokenTraceError(f"message {number} is empty, no node of a Chakra trace")
        if number:
            yield message


def _varint(source: BinaryIO) -> int | None:
    """The next message's length; None at the end of the trace."""
    number = 0
    for shift in range(0, 64, 7):
        byte = source.read(1)
        if not byte:
            if not shift:
                return None
            break
        number |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return number
    raise BrokenTraceError("is no Chakra trace: a message's length does not end")
