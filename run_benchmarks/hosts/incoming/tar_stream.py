"""Reads a tar stream from a host piece by piece: bounded memory, no recursion, nothing on the disk.

The standard library's reader is used only for single header blocks of 512 bytes. As a whole it recurses over chains of
extended headers, reads headers of any length into memory, keeps a record of every member, and its extraction filter is
absent or flawed in Pythons that are in use.
"""

import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

BLOCK = tarfile.BLOCKSIZE
MAX_EXTENDED_BYTES = 1 << 20  # of a pax header or a long name; GNU tar and Python write a few hundred bytes
MAX_SIZE = 1 << 62
MAX_DIGITS = 19
SPARSE_MORE, SPARSE_MORE_AGAIN = 482, 504  # where a sparse member's header says that another block follows
FILES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)
WITHOUT_CONTENT = {
    tarfile.DIRTYPE: "a folder", tarfile.SYMTYPE: "a symbolic link", tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device", tarfile.BLKTYPE: "a device", tarfile.FIFOTYPE: "a named pipe",
}  # fmt: skip
PAX_HEADERS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE)
EXTENDED = (*PAX_HEADERS, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)


class ArchiveError(Exception):
    """The data is no tar archive."""


class ArchiveSink(Protocol):
    """Takes the members of an archive in order. Between `begin_file` and `end_file` come the bytes of that file."""

    def begin_file(self, name: str, mode: int) -> None:
        """A regular file begins."""

    def write(self, data: memoryview) -> None:
        """The next bytes of the file."""

    def end_file(self) -> None:
        """The file is complete."""

    def folder(self, name: str) -> None:
        """A folder."""

    def leave_out(self, name: str, why: str) -> None:
        """A member of a kind that is not taken, and the reason."""


@dataclass
class _Extended:
    """Values of extended headers for the member that follows them."""

    name: str | None = None
    size: int | None = None
    unfit: str = ""

    def name_and_size(self, member: tarfile.TarInfo) -> tuple[str, int]:
        """The member's, or what stands here in their place."""
        return member.name if self.name is None else self.name, member.size if self.size is None else self.size


class TarStream:
    """Takes an archive in pieces, cut anywhere, and passes its members to `sink`. Archives may follow one another."""

    def __init__(self, sink: ArchiveSink) -> None:
        self._sink = sink
        self._block = bytearray()
        self._needed = BLOCK
        self._next: Callable[[bytes], None] = self._header
        self._content = 0  # remaining bytes of the current file
        self._skipped = 0  # bytes after that to skip
        self._extended = _Extended()

    def feed(self, chunk: bytes) -> None:
        """Take the next piece.

        Raises:
            ArchiveError: the stream is no valid archive.
            Exception: whatever the sink raises.
        """
        view = memoryview(chunk)
        while len(view):
            if self._content:
                size = min(len(view), self._content)
                self._sink.write(view[:size])
                self._content -= size
                if not self._content:
                    self._sink.end_file()
            elif self._skipped:
                size = min(len(view), self._skipped)
                self._skipped -= size
            else:
                size = min(len(view), self._needed - len(self._block))
                self._block += view[:size]
                if len(self._block) == self._needed:
                    block = bytes(self._block)
                    self._block.clear()
                    self._next(block)
            view = view[size:]

    @property
    def at_rest(self) -> bool:
        """Whether the stream may end here: outside a header and a file."""
        return not self._content and not self._block and self._next == self._header

    def _header(self, block: bytes) -> None:
        if not block.strip(b"\0"):
            return  # an archive's end, or its padding
        member = _member(block)
        if member.type in EXTENDED:
            self._begin_extended(member)
            return
        extended, self._extended = self._extended, _Extended()
        name, size = extended.name_and_size(member)
        if member.type == tarfile.DIRTYPE and not extended.unfit:
            self._sink.folder(name)
        elif member.type in WITHOUT_CONTENT:
            self._sink.leave_out(name, extended.unfit or WITHOUT_CONTENT[member.type])
        elif member.type in FILES and not extended.unfit:
            self._sink.begin_file(name, member.mode)
            self._content, self._skipped = size, -size % BLOCK
            if not size:
                self._sink.end_file()
        elif member.type == tarfile.GNUTYPE_SPARSE:
            self._sink.leave_out(name, extended.unfit or "a sparse file")
            if block[SPARSE_MORE]:
                self._begin_sparse(size)
            else:
                self._skipped = _padded(size)
        else:
            self._sink.leave_out(name, extended.unfit or "of a kind we do not know")
            self._skipped = _padded(size)

    def _begin_sparse(self, size: int) -> None:
        """Skip the map of a sparse file, which continues in further blocks before its contents."""

        def more(block: bytes) -> None:
            if not block[SPARSE_MORE_AGAIN]:
                self._next = self._header
                self._skipped = _padded(size)

        self._next = more

    def _begin_extended(self, member: tarfile.TarInfo) -> None:
        kind, size = member.type, member.size
        if size > MAX_EXTENDED_BYTES:
            self._extended.unfit = f"its extended header has {size} bytes"
        if size == 0 or size > MAX_EXTENDED_BYTES or kind in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            self._skipped = _padded(size)
            return

        def whole(data: bytes) -> None:
            self._next, self._needed = self._header, BLOCK
            if kind in PAX_HEADERS:
                _read_pax(data[:size], self._extended)
            else:
                self._extended.name = data[:size].split(b"\0")[0].decode("utf-8", "surrogateescape")

        self._next, self._needed = whole, _padded(size)


def _member(block: bytes) -> tarfile.TarInfo:
    """The member that a header describes."""
    try:
        member = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError, OverflowError) as error:
        raise ArchiveError(f"no tar header: {error}") from error
    if not 0 <= member.size < MAX_SIZE:
        raise ArchiveError(f"a member of {member.size} bytes")
    return member


def _padded(size: int) -> int:
    return size + -size % BLOCK


def _read_pax(data: bytes, extended: _Extended) -> None:
    r"""Read records `<length> <key>=<value>\n`, where the length is that of the whole record."""
    at = 0
    while at < len(data) and data[at]:
        space = data.find(b" ", at, at + MAX_DIGITS)
        length = data[at:space] if space > 0 else b""
        if not length.isdigit():
            raise ArchiveError("a pax header without the length of a record")
        end = at + int(length)
        key, separator, value = data[space + 1 : end - 1].partition(b"=")
        if end <= space + 1 or end > len(data) or not separator or data[end - 1 : end] != b"\n":
            raise ArchiveError("a pax header with a broken record")
        if key == b"path":
            extended.name = value.decode("utf-8", "surrogateescape")
        elif key == b"size":
            if not value.isdigit() or len(value) > MAX_DIGITS or int(value) >= MAX_SIZE:
                raise ArchiveError("a pax header with a size that is none")
            extended.size = int(value)
        elif key.startswith(b"GNU.sparse."):
            extended.unfit = "a sparse file"
        at = end
