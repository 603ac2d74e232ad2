"""Times collectives by what a run of our network benchmark measured: `predict --measured RUN_FOLDER`."""

from collections.abc import Iterator
from math import exp, log
from pathlib import Path

from pydantic import BaseModel, JsonValue

from common.errors import input_problem
from common.interpolation import over_logs
from simulation.common.run_folder import read_record, rounds
from simulation.predict.duration import Links
from simulation.predict.machine import Machine
from workloads.formats.simai_text import KNOWN

_Curve = list[tuple[int, float]]


class _Round(BaseModel):
    """The fields that are read of round.json."""

    verdict: str
    steps: list[dict[str, JsonValue]]


def _collectives(folder: Path) -> Iterator[tuple[bool, str, int, int, float]]:
    """Of each collective of rounds that passed: whether it came after compute, name, ranks, bytes, time in us."""
    for path in rounds(folder, "--measured"):
        record = read_record(path, _Round)
        for step in record.steps if record.verdict in ("pass", "degraded") else ():
            name, ranks, size, us = (step.get(key) for key in ("collective", "world_size", "size_bytes", "time_us"))
            median = us.get("p50") if isinstance(us, dict) else None
            # After compute, as in a job, what counts is from when the last rank begins.
            last = step.get("last_rank_us")
            took = median if last is None else last
            if name in KNOWN and isinstance(ranks, int) and isinstance(size, int) and isinstance(took, int | float):
                yield last is not None, KNOWN[str(name)], ranks, size, took


class MeasuredLinks:
    """Medians in us by collective, ranks and bytes; those after compute where there are some.

    What was not measured is asked of `behind`, if there is one.
    """

    def __init__(self, folder: Path, behind: Links | None = None) -> None:
        """Read the rounds that passed.

        Raises:
            InputProblems: the folder is no run's, or no collective of all ranks was measured there.
        """
        self.folder, self._behind = folder, behind
        times: dict[bool, dict[tuple[str, int], dict[int, float]]] = {True: {}, False: {}}
        for after_compute, op, ranks, size, took in _collectives(folder):
            curve = times[after_compute].setdefault((op, ranks), {})
            curve[size] = min(took, curve.get(size, took))
        self.curves: dict[tuple[str, int], _Curve] = {
            key: sorted((size, us) for size, us in curve.items() if size > 0 and us > 0)
            for key, curve in {**times[False], **times[True]}.items()
        }
        if not any(self.curves.values()):
            raise input_problem("--measured", folder, f"no round that passed measured {', '.join(KNOWN)} of all ranks")

    def machine_on(self, machine: Machine) -> Machine:
        """The machine as it is behind."""
        return self._behind.machine_on(machine) if self._behind else machine

    def collective_us(self, op: str, ranks: int, stride: int, size: float, gpus: int) -> float | None:
        """A collective of `size` bytes, in us, straight in the logarithms of size and time; None: not measured.

        Beyond the measured sizes it grows as between the last two; below them it is that of the smallest.
        """
        curve = self.curves.get((op, ranks))
        if not curve:
            return self._behind.collective_us(op, ranks, stride, size, gpus) if self._behind else None
        return exp(over_logs([each for each, _ in curve], [log(us) for _, us in curve], size, beyond=True))

    def said(self) -> str:
        """In words, what was measured."""
        found = [f"{op} of {ranks} ranks ({len(curve)} sizes)" for (op, ranks), curve in sorted(self.curves.items())]
        return f"{self.folder}: {', '.join(found)}"
