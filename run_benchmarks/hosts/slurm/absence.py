"""Waits for slurmctld where it does not answer, as while it is restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.hosts.slurm.client import SlurmError

ASK_SECONDS = 5.0
"""Between two questions."""
T = TypeVar("T")


class SilentSlurmError(ClusterDynoError):
    """Slurm did not answer a command of the user, who can give it again."""

    ends_with = 2


def of_slurmctld(error: ClusterDynoError) -> bool:
    """Whether an error comes of a slurmctld that did not answer."""
    cause = _of_slurm(error)
    return cause is not None and cause.is_away


def _of_slurm(error: ClusterDynoError) -> SlurmError | None:
    """The error of a command of Slurm: the error itself, or its cause."""
    cause = error if isinstance(error, SlurmError) else error.__cause__
    return cause if isinstance(cause, SlurmError) else None


@contextmanager
def answered(then: str = "do it again once `scontrol ping` answers") -> Iterator[None]:
    """Say of a slurmctld that did not answer, or that is unknown here, that nothing is lost, and what to do `then`.

    Raises:
        SilentSlurmError: one of them.
    """
    try:
        yield
    except ClusterDynoError as error:
        cause = _of_slurm(error)
        if cause is None or not (cause.is_away or cause.is_unknown):
            raise
        said = cause.detail.splitlines()[-1]
        raise SilentSlurmError(f"Slurm does not answer: {said}; nothing is lost: {then}") from error


def outlast(
    ask: Callable[[], T], patience: Patience, is_absence: Callable[[ClusterDynoError], bool] = of_slurmctld
) -> T:
    """The answer, asked for again while slurmctld is away, from its first silence on for as long as `patience` has.

    Raises:
        ClusterDynoError: whatever `ask` raises that is no absence, or the last that is one.
    """
    since: float | None = None
    while True:
        try:
            return ask()
        except ClusterDynoError as error:
            now = patience.now()
            since = now if since is None else since
            if not is_absence(error) or now - since >= patience.limit or patience.is_over():
                raise
            patience.tell(f"slurmctld does not answer, or just began; asking again for {patience.limit:g} s")
        time.sleep(ASK_SECONDS)


class Sparingly:
    """A teller that says a sentence once for all who want it told within so many seconds."""

    def __init__(self, tell: Callable[[str], None], seconds: float) -> None:
        self._tell, self._seconds = tell, seconds
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def __call__(self, sentence: str) -> None:
        """Tell it, unless it was told so shortly before."""
        with self._lock:
            now = time.monotonic()
            is_new = now - self._told.get(sentence, float("-inf")) >= self._seconds
            if is_new:
                self._told[sentence] = now
        if is_new:
            self._tell(sentence)
