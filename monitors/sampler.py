"""Defines the interface of a sampler, and calls samplers that may hang without delaying the others."""

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")
Values = Mapping[str, Any]


class Unavailable(Exception):  # noqa: N818 - a state of the host, not a mistake of the program
    """This host lacks what the sampler reads; reported once in the logs, never retried."""


class Late(Exception):  # noqa: N818
    """A call did not answer within its deadline; it continues in its thread, and the next one is tried later."""


class Sampler(ABC):
    """Reads one thing of this host at every tick.

    source: the record's "source"; meter: distinguishes samplers of one source ("" if there is one). log: name of the
    text log ("" for none); columns: the columns after the time in each of its lines. is_rare: it does not read at every
    tick, so that its last sample is taken however short the time since the last tick.
    """

    source: ClassVar[str]
    meter: ClassVar[str] = ""
    log: str = ""
    columns: ClassVar[Sequence[str]] = ()
    is_rare: ClassVar[bool] = False

    @abstractmethod
    def sample(self) -> Values | None:
        """The values read, JSON-able; None if there is nothing new.

        Raises:
            Unavailable: the sampler cannot work here; it is not called again.
        """

    def sample_last(self) -> Values | None:
        """The values at the end of the round: for samplers that do not read at every tick."""
        return self.sample()

    def rows(self, values: Values) -> list[Sequence[Any]]:
        """The lines of the text log for these values, without the time."""
        return [[values[column] for column in self.columns]]

    def close(self) -> None:
        """Releases what the sampler holds; must not block."""
        return None


class Worker:
    """One daemon thread for calls that may hang (a driver in trouble), one at a time, each with a deadline."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._pending: Future[Any] | None = None
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def call(self, function: Callable[[], T], deadline_s: float) -> T:
        """The function's result or exception, within `deadline_s` seconds.

        Raises:
            Late: the deadline has passed, or an earlier call still hangs.
        """
        end = time.monotonic() + deadline_s
        if self._pending is not None:
            wait([self._pending], deadline_s)
        future = self.begin(function)
        try:
            return future.result(max(0.0, end - time.monotonic()))
        except TimeoutError:
            if future.done():  # the function itself raised it
                raise
            raise Late(f"no answer within {deadline_s:g} s") from None

    def begin(self, function: Callable[[], T]) -> Future[T]:
        """Begins a call, and waits for nothing: its result or exception comes to the future.

        Raises:
            Late: an earlier call still hangs.
        """
        if self._pending is not None and not self._pending.done():
            raise Late("the call before has not come back")
        future: Future[T] = Future()
        self._pending = future
        self._calls.put((future, function))
        return future

    def _serve(self) -> None:
        while True:
            future, function = self._calls.get()
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - handed to the caller, who waits for it
                future.set_exception(error)
