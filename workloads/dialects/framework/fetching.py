"""Follows which parameters ZeRO 3 has gathered while a micro-batch runs (deepspeed 0.19.8).

A module's parameters are gathered when it begins and released when it ends. Once the order of the modules is known,
parameters are gathered ahead, and released only where no module needs them soon.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import NamedTuple

from workloads.rows.traced_op import Call

LEARNS, DECIDES = 0, 1
"""Numbers of the micro-batches that learn the order of the modules, and which parameters are released where."""


class Fetch(NamedTuple):
    """A module begins, in the forward pass or, `backward`, in front of its backward pass. numbers: its parameters."""

    module: str
    numbers: tuple[int, ...]
    phase: str
    backward: bool


class Release(NamedTuple):
    """A module ends."""

    module: str
    numbers: tuple[int, ...]


class Gradient(NamedTuple):
    """A gradient is complete."""

    number: int


class Compute(NamedTuple):
    """Kernels run."""

    kernels: tuple[Call, ...]


Event = Fetch | Release | Gradient | Compute


class FetchLimits(NamedTuple):
    """Elements: gathered ahead at once, gathered in all, and between two uses that keep a parameter gathered."""

    ahead: int
    live: int
    reuse: int


class Fetching:
    """One rank's parameters. sizes: elements of each; persistent: those that stay gathered; events: a micro-batch.

    `micro_batch` runs one; what it decided in the first with a known order holds in all that follow.
    """

    def __init__(
        self, sizes: list[int], events: Sequence[Event], persistent: frozenset[int], limits: FetchLimits
    ) -> None:
        self.sizes = sizes
        self.events = events
        self.persistent = persistent
        self.limits = limits
        self.begins = [event for event in events if isinstance(event, Fetch)]
        self.uses = [(number, step) for step, each in enumerate(self.begins) for number in sorted(set(each.numbers))]
        self._steps: list[list[int]] = [[] for _ in sizes]
        for number, step in self.uses:
            self._steps[number].append(step)
        self._before = [0, *accumulate(sum(sizes[number] for number in each.numbers) for each in self.begins)]
        self._released: dict[tuple[str, int], frozenset[int]] = {}

    def micro_batch(
        self,
        kind: int,
        gathered: frozenset[int],
        gather: Callable[[list[int], Fetch], None],
        gradient: Callable[[int], None],
        compute: Callable[[tuple[Call, ...]], None],
    ) -> frozenset[int]:
        """Run one from what is `gathered`. Returns what it leaves.

        kind: LEARNS, or any other number; gather, gradient, compute: called for parameters as they are gathered by one
        call, for each gradient that is complete, and for the kernels between them.
        """
        run = _Run(self, kind != LEARNS, set(gathered), gather)
        for event in self.events:
            if isinstance(event, Fetch):
                run.begin(event)
            elif isinstance(event, Release):
                run.end(event)
            elif isinstance(event, Compute):
                compute(event.kernels)
            else:
                gradient(event.number)
        return run.left()

    def released(self, module: Release, step: int, fetched: dict[int, int]) -> frozenset[int]:
        """Parameters that the module's end releases at this step. fetched: for which use each was gathered last."""
        key = (module.module, step)
        if key not in self._released:
            self._released[key] = frozenset(
                number for number in module.numbers
                if number not in self.persistent and fetched.get(number, -1) <= step and not self._soon(number, step)
            )  # fmt: skip
        return self._released[key]

    def _soon(self, number: int, step: int) -> bool:
        """Whether a module needs the parameter again within the distance that keeps it."""
        steps = self._steps[number]
        place = bisect_left(steps, step)
        return place < len(steps) and self._before[steps[place]] - self._before[step] < self.limits.reuse


class _Run:
    """One micro-batch. known: the order of the modules is known."""

    def __init__(
        self, of: Fetching, known: bool, gathered: set[int], gather: Callable[[list[int], Fetch], None]
    ) -> None:
        self.of = of
        self.known = known
        self.gathered = gathered
        self.gather = gather
        self.step = 0
        self.live = 0
        self.queue = deque(of.uses if known else ())
        self.fetched: dict[int, int] = {}
        self.flying: dict[int, list[int]] = {}
        self.active: dict[int, set[str]] = {}
        self.open: dict[str, Fetch] = {}

    def begin(self, event: Fetch) -> None:
        """Gather what the module needs and does not have, wait for it, then gather ahead."""
        if event.backward:
            self.open[event.module] = event
        self._gather([each for each in event.numbers if not self._held(each)], event)
        for number in event.numbers:
            self.active.setdefault(number, set()).add(event.module)
            self._wait(number)
        if self.known:
            self._dequeue(event)
            self._ahead(event)
        self.step += 1

    def end(self, event: Release) -> None:
        """Release what nothing needs soon; while the order is unknown, all."""
        self.open.pop(event.module, None)
        released = self.of.released(event, self.step, self.fetched) if self.known else event.numbers
        for number in event.numbers:
            self.active.get(number, set()).discard(event.module)
            if number in released:
                self._release(number)

    def left(self) -> frozenset[int]:
        """The parameters that stay gathered: modules whose backward pass has no end are ended, what is still coming is
        dropped.
        """
        for event in self.open.values():
            for number in event.numbers:
                self.active[number].discard(event.module)
                if number not in self.of.persistent:
                    self._release(number)
        for number in list(self.flying):
            self._wait(number)
            self._release(number)
        return frozenset(self.gathered)

    def _held(self, number: int) -> bool:
        return number in self.gathered or number in self.flying

    def _gather(self, numbers: list[int], event: Fetch) -> None:
        if not numbers:
            return
        self.live += sum(self.of.sizes[number] for number in numbers)
        self.gather(numbers, event)
        together = list(numbers)
        for number in numbers:
            self.flying[number] = together

    def _wait(self, number: int) -> None:
        """Parameters of one call arrive together."""
        together = self.flying.pop(number, [])
        self.gathered.update(together)
        together.clear()

    def _release(self, number: int) -> None:
        if number in self.gathered and not self.active.get(number):
            self.gathered.discard(number)
            self.live -= self.of.sizes[number]

    def _dequeue(self, event: Fetch) -> None:
        """Take what the module needs from the queue of parameters to come, unless it was gathered ahead for it."""
        needed = {number for number in event.numbers if self.fetched.get(number, -1) < self.step}
        taken: set[int] = set()
        while self.queue and len(taken) < len(needed):
            number, step = self.queue.popleft()
            self.fetched[number] = step
            taken.add(number)

    def _ahead(self, event: Fetch) -> None:
        """Gather the parameters of the next modules, until there are enough of them."""
        most = min(self.of.limits.live - self.live, self.of.limits.ahead)
        wanted: dict[int, None] = {}
        size = 0
        while self.queue and size < most and self.of.limits.ahead:
            number, step = self.queue.popleft()
            self.fetched[number] = max(self.fetched.get(number, -1), step)
            if number not in wanted and not self._held(number):
                wanted[number] = None
                size += self.of.sizes[number]
        self._gather(list(wanted), event)
