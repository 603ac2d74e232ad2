"""Fills the computation rows of a workload CSV with times from the database."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isinf

from workloads.compute.lookup import Answer, ComputeTimes
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError
from workloads.rows.calls import FLOAT8
from workloads.rows.ops import Kernel, LogItem, kernel_of

FP8 = "fp8"
"""The database's word for FLOAT8."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A workload whose kernels have times, and the answer for each kernel, with how many rows have it."""

    workload: Workload
    answers: dict[Kernel, Answer]
    rows: dict[Kernel, int]

    def lines(self) -> Iterable[str]:
        """The notes for the user on the answers."""
        ways = Counter(answer.how for answer in self.answers.values())
        yield f"{len(self.answers)} kernels in {sum(self.rows.values())} rows: " + ", ".join(
            f"{count} {how}" for how, count in ways.items()
        )
        bounded = {kernel: answer for kernel, answer in self.answers.items() if not isinf(answer.error)}
        if bounded:
            worst = max(bounded, key=lambda kernel: bounded[kernel].error)
            yield f"largest error bar: {bounded[worst].error:.1%}, of {worst.op} {worst.shape}"
        if len(bounded) < len(self.answers):
            yield f"{len(self.answers) - len(bounded)} kernels have a lower bound alone"


def fill(workload: Workload, times: ComputeTimes, device: str, dtype: str) -> Filled:
    """Each kernel's row with its time on a device, rounded to whole ns; dtype: of all rows but those in FP8.

    Raises:
        AicbError: the workload has no kernels, or one of them has no time.
    """
    rows: Counter[Kernel] = Counter()
    narrow: set[Kernel] = set()
    for item, count in workload.rows.tally_kinds().items():
        found = kernel_of(item)
        if found is not None:
            rows[found] += count
            if item.dtype == FLOAT8:
                narrow.add(found)
    if not rows:
        raise AicbError("the workload has no computation rows; generate --computation_enable writes them")
    answers = {
        kernel: times.look_up(device, kernel.op, kernel.shape, FP8 if kernel in narrow else dtype)
        for kernel in sorted(rows)
    }

    def timed(item: LogItem) -> LogItem:
        kernel = kernel_of(item)
        return item if kernel is None else replace(item, elapsed_time=round(answers[kernel].ns))

    return Filled(Workload(workload.rows.map(timed), workload.args), answers, dict(rows))
