"""Times collectives by what a run of our network benchmark measured: `predict --measured RUN_FOLDER`."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from common.errors import input_problem
from common.run_folder import read_record, rounds
from common.summary import counted
from simulation.predict.duration import Links
from simulation.predict.kernels import table_source
from simulation.predict.machine import Machine
from workloads.formats.simai_text import KNOWN

_Curve = list[tuple[int, float]]
_Ways = dict[tuple[str, ...], list[float]]


class _Round(BaseModel):
    """The fields that are read of round.json."""

    verdict: str
    steps: list[dict[str, JsonValue]]


_Place = tuple[str, int, int | None]
"""A collective's name, ranks, and hosts; None: not said."""


VARIANT = ("in_place", "root", "op", "dtype", "aggregate", "after_compute_ms")  # keys of a step


class _Took(NamedTuple):
    """The time (us) of a collective, in which case and variant, and whether it came after compute."""

    after_compute: bool
    place: _Place
    size: int
    us: float
    measured_as: tuple[str, ...]


def _collectives(folder: Path) -> Iterator[_Took]:
    """The collectives of rounds that passed."""
    for path in rounds(folder, "--measured"):
        record = read_record(path, _Round)
        for step in record.steps if record.verdict in ("pass", "degraded") else ():
            name, ranks, size, us = (step.get(key) for key in ("collective", "world_size", "size_bytes", "time_us"))
            hosts = len(its) if isinstance(its := step.get("hosts"), list) else None
            usual = us.get("p50") if isinstance(us, dict) else None
            # After compute, as in a job, what counts is what a call adds; in older records, from the last rank's begin.
            last = step.get("added_us", step.get("last_rank_us"))
            took = usual if last is None else last
            if name in KNOWN and isinstance(ranks, int) and isinstance(size, int) and isinstance(took, int | float):
                way = (path.parent.parent.name, *(str(step.get(key)) for key in VARIANT))
                yield _Took(last is not None, (KNOWN[str(name)], ranks, hosts), size, took, way)


class MeasuredLinks:
    """Times in us by collective, ranks, hosts and bytes; those after compute where there are some.

    They are medians over the rounds of a case and variant; of several cases and variants the fastest counts.
    What was not measured is asked of `behind`, if there is one.
    """

    def __init__(self, folder: Path, behind: Links | None = None) -> None:
        """Read the rounds that passed.

        Raises:
            InputProblems: the folder is no run's, or no collective of all ranks was measured there.
        """
        self.folder, self._behind, self._per_server = folder, behind, 0
        self._fitted, self._missing = False, dict[_Place, None]()
        times: dict[bool, dict[_Place, dict[int, _Ways]]] = {True: {}, False: {}}
        for each in _collectives(folder):
            # A call that computes of others hide adds nothing.
            if each.size > 0 and (each.us > 0 or (each.after_compute and each.us == 0)):
                ways = times[each.after_compute].setdefault(each.place, {}).setdefault(each.size, defaultdict(list))
                ways[each.measured_as].append(each.us)
        self.curves: dict[_Place, _Curve] = {
            key: sorted((size, min(map(median, ways.values()))) for size, ways in curve.items())
            for key, curve in {**times[False], **times[True]}.items()
        }
        if not self.curves:
            raise input_problem("--measured", folder, f"no round that passed measured {', '.join(KNOWN)} of all ranks")

    def machine_on(self, machine: Machine) -> Machine:
        """The machine as it is behind; its servers say from now on which groups are within one host."""
        found = self._behind.machine_on(machine) if self._behind else machine
        self._per_server = found.server
        return found

    def collective_us(self, op: str, ranks: int, stride: int, size: float, gpus: int) -> float | None:
        """A collective of `size` bytes, in us, straight in its bytes between two measured sizes; None: not measured.

        Beyond the measured sizes it grows as between the last two; below them it is that of the smallest.
        """
        curve = self._curve(op, ranks, stride)
        self._fitted = self._fitted or bool(curve)
        if not curve:
            self._missing[op, ranks, self._hosts(ranks, stride)] = None
            return self._behind.collective_us(op, ranks, stride, size, gpus) if self._behind else None
        return _on(curve, size)

    def source(self, op: str, ranks: int, stride: int, size: float) -> str:
        """Whether this size was measured, lies between two, or beyond them; of what was not measured, as behind."""
        sizes = [at for at, _ in self._curve(op, ranks, stride) or ()]
        if not sizes:
            assert self._behind
            return self._behind.source(op, ranks, stride, size)
        return table_source(is_measured=size in sizes, is_within=sizes[0] <= size <= sizes[-1])

    def _curve(self, op: str, ranks: int, stride: int) -> _Curve | None:
        """The times of as many hosts as the group has; those that say no hosts are of any."""
        hosts = self._hosts(ranks, stride)
        for (name, number, on), curve in self.curves.items():
            if (name, number) == (op, ranks) and (on == hosts or None in (on, hosts)):
                return curve
        return None

    def _hosts(self, ranks: int, stride: int) -> int | None:
        return min(ranks, -(-ranks * stride // self._per_server)) if self._per_server else None

    def said(self) -> str:
        """In words, what was measured, and what the job needed if none of it was ever asked for."""
        texts = [f"{_named(place)} ({len(self.curves[place])} sizes)" for place in sorted(self.curves, key=_order)]
        if self._fitted or not self._missing:
            return f"{self.folder}: {', '.join(texts)}"
        needed = [_named(place) for place in sorted(self._missing, key=_order)]
        return f"{self.folder}: none of it fits this job, which needs {', '.join(needed)}; it has {', '.join(texts)}"


def _order(place: _Place) -> tuple[str, int, int]:
    op, ranks, hosts = place
    return op, ranks, hosts or 0


def _named(place: _Place) -> str:
    op, ranks, hosts = place
    return f"{op} of {ranks} ranks" + (f" on {counted(hosts, 'host')}" if hosts else "")


def _on(curve: _Curve, size: float) -> float:
    """A latency and a rate between two sizes. In the logarithms of both that would be too long, by up to
    6 % where sizes are a factor of four apart.
    """
    if size <= curve[0][0] or len(curve) == 1:
        return curve[0][1]
    above = min(bisect_right(curve, size, key=lambda each: each[0]), len(curve) - 1)
    (low, from_us), (high, to_us) = curve[above - 1 : above + 1]
    us = from_us + (to_us - from_us) * (size - low) / (high - low)
    return us if size <= high else max(us, to_us)
