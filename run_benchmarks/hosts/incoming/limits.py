"""Limits of the files that are collected from one node in a round, and the error for files beyond them."""

from collections.abc import Callable
from dataclasses import dataclass

from common.units import readable_bytes

GIB = 1 << 30
MAX_COLLECT_BYTES = 16 * GIB
MAX_COLLECT_FILES = 20_000
MAX_NAME_BYTES = 1024  # of a whole path: with the result folder before it, it stays below the kernel's 4096
MAX_PART_BYTES = 255
MAX_DEPTH = 32
PATH_MAX = 4096  # of the kernel: no program on a host opens a longer path
OVERHEAD_BYTES = 64 << 20  # what an archive may hold in addition to the contents of its files
OVERHEAD_BYTES_PER_FILE = 4096


class EnoughError(Exception):
    """A host sent more than a limit allows; what came before is valid. No OSError: no link breaks by it."""


@dataclass(frozen=True, kw_only=True)
class CollectLimits:
    """Limits of one pull: bytes that are written, and members of the archive of any kind.

    `is_urgent`: whether the run is to end; a pull then has no longer than its deadline, however much it brings.
    """

    max_bytes: int = MAX_COLLECT_BYTES
    max_files: int = MAX_COLLECT_FILES
    is_urgent: Callable[[], bool] = lambda: False

    @property
    def max_stream_bytes(self) -> int:
        """Limit of the archive itself in bytes: headers, padding and skipped members count, too."""
        return self.max_bytes + OVERHEAD_BYTES + OVERHEAD_BYTES_PER_FILE * self.max_files

    def too_many_bytes(self) -> EnoughError:
        """The error of an archive that is too large."""
        return EnoughError(f"there is more than MAX_COLLECT_BYTES ({readable_bytes(self.max_bytes)})")

    def too_many_files(self) -> EnoughError:
        """The error of an archive with too many members."""
        return EnoughError(f"there are more files than MAX_COLLECT_FILES ({self.max_files})")
