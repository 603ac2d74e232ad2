"""Receives one archive of a host: the command's output goes through the reader into a staging folder as it arrives."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from types import TracebackType

from run_benchmarks.errors import DeadlineError, HostError, LinkLostError, TooSlowError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.incoming.limits import CollectLimits, EnoughError, readable_bytes
from run_benchmarks.hosts.incoming.staging import Staging
from run_benchmarks.hosts.incoming.tar_stream import ArchiveError, TarStream

SLOWEST_BYTES = 1 << 20  # in a second: a link that brings as much is waited for
LOOKS = 20  # in the time of a deadline


class Reception:
    """Use once, as a context: files of the staging folder that were not kept are removed at the end.

    Attributes:
        refused: why the data is no complete archive.
        enough: a limit was reached; the host's command was ended then.
    """

    def __init__(self, destination: Path, limits: CollectLimits, reserved: Collection[str] = ()) -> None:
        self._destination, self._limits = destination, limits
        self._staging = Staging(destination.parent, limits, reserved)
        self._stream = TarStream(self._staging)
        self._bytes = 0
        self._stop = threading.Event()
        self._unkept: OSError | None = None
        self._slow = ""
        self.refused: ArchiveError | None = None
        self.enough: EnoughError | None = None

    def __enter__(self) -> Reception:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._staging.close()

    def receive(self, host: Host, argv: Sequence[str], deadline: float) -> tuple[str, int, HostError | None]:
        """Run the command and keep its output; returns its stderr, its exit code and the error of a broken transfer.

        The command is ended if nothing comes in the first `deadline` seconds, in which the host reads all its files;
        if less than SLOWEST_BYTES a second comes in as many later ones; or if it goes on for as many after the run is
        to end.

        Raises:
            OSError: the head node cannot keep the files.
        """
        broken: HostError | None = None
        longest = 2 * deadline + self._limits.max_stream_bytes / SLOWEST_BYTES
        is_over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(deadline, is_over), name="pace", daemon=True)
        watch.start()
        try:
            done = host.run(argv, on_stdout=self.feed, deadline=longest, check=False, cancel=self._stop)
            listing, exit_code = done.stderr, 0 if self._stop.is_set() else done.exit_code
        except (DeadlineError, LinkLostError) as error:
            listing, exit_code, broken = error.output, 1, error
            if self._stop.is_set():
                broken = None
        finally:
            is_over.set()
            watch.join()
        if self._slow:
            broken = TooSlowError(host.name, argv, deadline, self._slow)
        if self._unkept is not None:
            raise self._unkept
        if broken is None and not self._stop.is_set() and not self._stream.at_rest:
            self.refused = ArchiveError("it ends in the middle of a member")
        return listing, exit_code, broken

    def _watch(self, seconds: float, is_over: threading.Event) -> None:
        """End the transfer once it brings too little in so many seconds, or goes on so long after the run is to end."""
        before = urgent = 0
        for look in itertools.count(1):
            if is_over.wait(seconds / LOOKS) or self._stop.is_set():
                return
            urgent += self._limits.is_urgent()
            if urgent >= LOOKS:
                self._slow = f"the run is to end, and it goes on after {seconds:g} s"
            elif look % LOOKS == 0:
                came = self._bytes
                if came - before < (SLOWEST_BYTES * seconds if before else 1):
                    self._slow = f"it brought less than {readable_bytes(SLOWEST_BYTES)} a second for {seconds:g} s"
                before = came
            if self._slow:
                self._stop.set()
                return

    def feed(self, chunk: bytes) -> None:
        """Take a piece. After the first error the command is ended and the remaining data is ignored.

        Nothing fails here: the host's list of its files, on its other stream, is needed in any case.
        """
        if self._stop.is_set():
            return
        self._bytes += len(chunk)
        try:
            if self._bytes > self._limits.max_stream_bytes:
                raise self._limits.too_many_bytes()
            self._stream.feed(chunk)
        except EnoughError as error:
            self.enough = error
        except ArchiveError as error:
            self.refused = error
        except OSError as error:
            self._unkept = error
        else:
            return
        self._stop.set()

    @property
    def digests(self) -> dict[str, str]:
        """sha256 by name of the received files; for a file that was cut, of its beginning."""
        return self._staging.digests

    @property
    def cut(self) -> set[str]:
        """The file of which a limit left only the beginning, if any."""
        return self._staging.cut

    @property
    def left_out(self) -> dict[str, str]:
        """The reason, by name, why members were not taken."""
        return self._staging.left_out

    def keep(self, names: Iterable[str]) -> None:
        """Move these files into the destination.

        Raises:
            OSError: a file cannot be moved.
        """
        self._staging.move(names, self._destination)
