"""Checks that the PerfLog of one rank holds its events in the right number, order and nesting.

Rules: SUBMIT_INFO exactly once, first, and with a known schema version; INIT_START, INIT_END, TRAIN_START, TRAIN_END
and FINISHED exactly once each, in this order, FINISHED last; epochs and steps begin and end in turn, steps inside
epochs where there are epochs, and these and EVALUATE inside the training; one rank; time never goes backwards.
"""

from collections import Counter
from collections.abc import Iterable

from protocol.perflog.record import SCHEMA_VERSION, Event, PerfLogRecord

# Number of reported violations per rule: a log of millions of lines may break one in each.
MAX_TOLD = 20
# Each exactly once and in this order.
_PHASES = (Event.INIT_START, Event.INIT_END, Event.TRAIN_START, Event.TRAIN_END, Event.FINISHED)
_TRAINING = (Event.EPOCH_BEGIN, Event.EPOCH_END, Event.STEP_BEGIN, Event.STEP_END, Event.EVALUATE)
_STEPS = (Event.STEP_BEGIN, Event.STEP_END)


def check_sequence(records: Iterable[PerfLogRecord], *, strict: bool = True) -> list[str]:
    """The rule violations in one rank's log, in words; empty if there are none. `strict` as for SequenceCheck."""
    check = SequenceCheck(strict=strict)
    for record in records:
        check.add(record)
    return check.broken()


class SequenceCheck:
    """Checks the records of one rank's log as they arrive, in constant memory.

    `strict=False` is for FlagPerf's own logs: they may lack SUBMIT_INFO or its value, and FINISHED on every rank except
    the first of each node; every other rule holds for them too.
    """

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._counts: Counter[Event] = Counter()
        self._number = 0
        self._first: Event | None = None
        self._last: PerfLogRecord | None = None
        self._version: object = None
        self._ranks: set[int] = set()
        self._phase: Event | None = None
        self._training = self._epoch = False
        self._order, self._nesting, self._outside_epochs, self._backwards = _Told(), _Told(), _Told(), _Told()
        self._pairs = (_Pair(Event.EPOCH_BEGIN, Event.EPOCH_END), _Pair(Event.STEP_BEGIN, Event.STEP_END))

    def add(self, record: PerfLogRecord) -> None:
        """Take the next record of the log."""
        event, position = record.event, self._number
        if event is Event.SUBMIT_INFO and not self._counts[event]:
            value = record.value
            self._version = value.get("schema_version") if isinstance(value, dict) else None
        for pair in self._pairs:
            pair.add(event, position)
        if event in _PHASES:
            if self._phase is not None and _PHASES.index(event) < _PHASES.index(self._phase):
                self._order.add(f"{event} must come before {self._phase}")
            self._phase = event
        self._check_nesting(event, position)
        self._check_metadata(record, position)
        self._first = self._first or event
        self._last = record
        self._counts[event] += 1
        self._number += 1

    def broken(self) -> list[str]:
        """The violations in words, at most MAX_TOLD per rule; empty if all rules hold."""
        if self._last is None:
            return ["there are no PerfLog records"]
        found = [*self._submit_info(), *self._phases()]
        for pair in self._pairs:
            found += pair.told.sentences()
            if pair.is_open:
                found.append(f"the last {pair.begin} has no {pair.end}")
        found += self._nesting.sentences()
        if self._counts[Event.EPOCH_BEGIN]:
            found += self._outside_epochs.sentences()
        if len(self._ranks) > 1:
            found.append(f"one log must hold one rank, found {', '.join(map(str, sorted(self._ranks)))}")
        return found + self._backwards.sentences()

    def _submit_info(self) -> list[str]:
        count = self._counts[Event.SUBMIT_INFO]
        if count > 1 or (self._strict and not count):
            return [f"SUBMIT_INFO must stand exactly once, found {count}"]
        if not count:
            return []
        broken = []
        if self._first is not Event.SUBMIT_INFO:
            broken.append(f"SUBMIT_INFO must be the first record, found {self._first}")
        if self._strict and self._version != SCHEMA_VERSION:
            broken.append(f"SUBMIT_INFO must carry schema_version {SCHEMA_VERSION}, found {self._version!r:.100}")
        return broken

    def _phases(self) -> list[str]:
        required = _PHASES if self._strict else _PHASES[:-1]
        broken = [
            f"{event} must stand exactly once, found {self._counts[event]}"
            for event in _PHASES
            if self._counts[event] > 1 or (event in required and not self._counts[event])
        ]
        broken += self._order.sentences()
        if self._counts[Event.FINISHED] and self._last is not None and self._last.event is not Event.FINISHED:
            broken.append(f"FINISHED must be the last record, found {self._last.event} after it")
        return broken

    def _check_nesting(self, event: Event, position: int) -> None:
        if event in (Event.TRAIN_START, Event.TRAIN_END):
            self._training = event is Event.TRAIN_START
        elif event in _TRAINING and not self._training:
            self._nesting.add(f"record {position}: {event} must stand between TRAIN_START and TRAIN_END")
        elif event in (Event.EPOCH_BEGIN, Event.EPOCH_END):
            self._epoch = event is Event.EPOCH_BEGIN
        elif event in _STEPS and not self._epoch:
            # A violation only if there are epochs, which may come later.
            self._outside_epochs.add(f"record {position}: {event} must stand between EPOCH_BEGIN and EPOCH_END")
        elif event is Event.LAUNCH_TRAINING and self._counts[Event.INIT_START]:
            self._nesting.add(f"record {position}: LAUNCH_TRAINING must come before INIT_START")

    def _check_metadata(self, record: PerfLogRecord, position: int) -> None:
        if len(self._ranks) < MAX_TOLD:
            self._ranks.add(record.metadata.rank)
        if self._last is None:
            return
        backwards_ms = self._last.metadata.time_ms - record.metadata.time_ms
        if backwards_ms > 0:
            self._backwards.add(
                f"record {position}: {record.event} is {backwards_ms} ms earlier than {self._last.event} before it"
            )


class _Told:
    """Sentences of one kind: the first MAX_TOLD, and the number of further ones."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._more = 0

    def add(self, sentence: str) -> None:
        if len(self._kept) < MAX_TOLD:
            self._kept.append(sentence)
        else:
            self._more += 1

    def sentences(self) -> list[str]:
        return [*self._kept, *([f"and {self._more} more of this kind"] if self._more else [])]


class _Pair:
    """Two events that alternate."""

    def __init__(self, begin: Event, end: Event) -> None:
        self.begin, self.end = begin, end
        self.is_open = False
        self.told = _Told()

    def add(self, event: Event, position: int) -> None:
        if event is self.begin:
            if self.is_open:
                self.told.add(f"record {position}: {event} follows a {event} that has no {self.end}")
            self.is_open = True
        elif event is self.end:
            if not self.is_open:
                self.told.add(f"record {position}: {event} has no {self.begin} before it")
            self.is_open = False
