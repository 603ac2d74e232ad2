"""Takes the file of an execution trace apart: a sequence of messages, each after its length. It may be hostile."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chakra.schema.protobuf.et_def_pb2 import Node

LONGEST_MESSAGE = 64 << 20  # bytes
LARGEST_FILE = 4 << 30  # bytes, unpacked
MOST_NODES = 20_000_000
_GZIP = b"\x1f\x8b"


class BrokenTraceError(ValueError):
    """The bytes are no execution trace; the message says where."""


def unpacked(path: Path) -> bytes:
    """The file's content, at most LARGEST_FILE bytes of it; one that is packed by gzip is unpacked.

    Raises:
        OSError: it cannot be read, or what gzip packed is broken.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(len(_GZIP)) == _GZIP
        with gzip.open(path) if packed else path.open("rb") as source:
            return source.read(LARGEST_FILE)
    except (EOFError, zlib.error) as error:
        raise OSError(str(error)) from None


def nodes(data: bytes, schema: ModuleType) -> "Iterator[Node]":
    """The nodes of Chakra's `schema` (et_def_pb2) in a trace; its first message is the metadata.

    Raises:
        BrokenTraceError: the data ends within a message, or a message is malformed.
    """
    from google.protobuf.message import DecodeError

    at = number = 0
    while at < len(data):
        length, at = _varint(data, at)
        if length > LONGEST_MESSAGE or at + length > len(data):
            raise BrokenTraceError(f"ends within message {number}: it is cut off or no Chakra trace")
        message = schema.Node() if number else schema.GlobalMetadata()
        try:
            message.ParseFromString(data[at : at + length])
        except DecodeError:
            raise BrokenTraceError(f"message {number} is no node of a Chakra trace") from None
        if number and not length:
            raise BrokenTraceError(f"message {number} is empty, no node of a Chakra trace")
        if number > MOST_NODES:
            raise BrokenTraceError(f"has more than {MOST_NODES} nodes")
        if number:
            yield message
        at += length
        number += 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    raise BrokenTraceError("is no Chakra trace: a message's length does not end")
