"""Reads a file that somebody else may have put there: never waits for a pipe, never takes more than a bound."""

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path


def open_regular(path: Path) -> BufferedReader:
    """Open a regular file for reading; a link is followed.

    Raises:
        OSError: there is none, or it is a folder, a pipe, a socket or a device.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a FIFO would wait for a writer
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """The content of a regular file.

    Raises:
        OSError: it cannot be read, is no regular file, or has more than `max_bytes`.
    """
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise OSError(errno.EFBIG, f"more than {max_bytes} bytes", str(path))
    return data


def sha256_of(path: Path) -> str:
    """The sha256 of a regular file, in hex.

    Raises:
        OSError: it cannot be read, or is no regular file.
    """
    import hashlib  # takes long, and most that read a file want no digest

    with open_regular(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
