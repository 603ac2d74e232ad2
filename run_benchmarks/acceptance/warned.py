"""Collects the warnings of the health check over an acceptance: by kind and host, first and last, within bounds."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from run_benchmarks.acceptance.records import WarningRecord
from run_benchmarks.results.loading import LoadedRun

MOST_KINDS, MOST_HOSTS, MOST_PARTS, MOST_OF_HOST = 64, 64, 8, 32
"""Kinds of an acceptance, hosts of a kind that are named, sentences of a host on one kind, as of its devices, and kinds
of a host.
"""
NOBODY = "-"
"""Stands for the host of a fault that names none; it counts as no host."""
RAW = ("kernel log",)
"""Subjects whose sentences quote what differs on each host: each is one kind."""
_NUMBER = re.compile(r"[0-9]+(?:[.:]?[0-9A-Fa-f]+)*")


class Warned:
    """The warnings so far. Of a counter that rises the first and the last value show how it does."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, dict[str, list[str]]]] = {}
        self._kinds: Counter[str] = Counter()
        self._refused: dict[str, int] = {}

    def add(self, warnings: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """Take in what a look at hosts found: of each its pairs of a subject and a sentence on it."""
        for host, pairs in warnings.items():
            refused: set[str] = set()
            for subject, sentence in pairs:
                kind = subject if subject in RAW else _NUMBER.sub("#", f"{subject}: {sentence}")
                if host not in self._said.get(kind, {}):
                    if self._kinds[host] >= MOST_OF_HOST:
                        refused.add(kind)
                        continue
                    self._kinds[host] += 1
                said = self._said.setdefault(kind, {}).setdefault(host, {})
                if subject in said or len(said) < MOST_PARTS:
                    first, *_ = said.setdefault(subject, [f"{subject}: {sentence}"])
                    latest = f"{subject}: {sentence}"
                    said[subject] = [first] if latest == first else [first, latest]
            if refused:
                self._refused[host] = max(self._refused.get(host, 0), len(refused))

    @property
    def left_out(self) -> int:
        """How many kinds `records` does not list, those counted for each host that has too many."""
        return max(0, len(self._said) - MOST_KINDS) + sum(self._refused.values())

    def records(self) -> list[WarningRecord]:
        """The kinds, those of few hosts first: what most have is seldom what makes one bad. Of too many the half that
        the fewest have, and the half that most have.
        """
        ordered = sorted(self._said.items(), key=lambda item: len(item[1]))
        if len(ordered) > MOST_KINDS:
            ordered = [*ordered[: MOST_KINDS // 2], *ordered[-MOST_KINDS // 2 :]]
        return [
            WarningRecord(
                kind=kind,
                count=len(by_host.keys() - {NOBODY}),
                hosts={
                    host: [each for said in parts.values() for each in said]
                    for host, parts in list(by_host.items())[:MOST_HOSTS]
                },
            )
            for kind, by_host in ordered
        ]


def warnings_of(run: LoadedRun) -> dict[str, list[tuple[str, str]]]:
    """The warnings of a run by its monitors and benchmarks, by host: the device, or the case, and a sentence."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for case, records in run.rounds.items():
        for each in (each for record in records for each in record.findings):
            if each.severity == "warning" and each.kind != "not_run":
                for host in each.hosts:
                    found[host].append((each.device or case, f"{each.evidence}: {each.suggested_action}"))
    return found
