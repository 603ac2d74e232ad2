"""Collects the warnings of the health check over an acceptance: by kind and host, first and last, within bounds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from run_benchmarks.acceptance.records import WarningRecord

MOST_KINDS, MOST_HOSTS, MOST_PARTS = 64, 64, 8
"""Kinds of an acceptance, hosts of a kind that are named, and sentences of a host on one kind, as of its devices."""
_NUMBER = re.compile(r"[0-9]+(?:[.:]?[0-9A-Fa-f]+)*")


class Warned:
    """The warnings so far. Of a counter that rises the first and the last value show how it does."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, dict[str, list[str]]]] = {}

    def add(self, warnings: Mapping[str, Sequence[tuple[str, str]]]) -> None:
        """Take in what a look at hosts found: of each its pairs of a subject and a sentence on it."""
        for host, pairs in warnings.items():
            for subject, sentence in pairs:
                said = self._said.setdefault(_NUMBER.sub("#", f"{subject}: {sentence}"), {}).setdefault(host, {})
                if subject in said or len(said) < MOST_PARTS:
                    first, *_ = said.setdefault(subject, [f"{subject}: {sentence}"])
                    latest = f"{subject}: {sentence}"
                    said[subject] = [first] if latest == first else [first, latest]

    def records(self) -> list[WarningRecord]:
        """The kinds, those of few hosts first: what most have is seldom what makes one bad."""
        ordered = sorted(self._said.items(), key=lambda item: len(item[1]))
        return [
            WarningRecord(
                kind=kind,
                count=len(by_host),
                hosts={
                    host: [each for said in parts.values() for each in said]
                    for host, parts in list(by_host.items())[:MOST_HOSTS]
                },
            )
            for kind, by_host in ordered[:MOST_KINDS]
        ]
