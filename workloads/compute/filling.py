"""Fills the computation rows of a workload CSV with times from the database."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isinf

from workloads.compute.lookup import Answer, ComputeTimes
from workloads.formats.workload import Workload
from workloads.job.errors import AicbError
from workloads.rows.ops import Gemm, LogItem, gemm_of, gemms_of


@dataclass(frozen=True, slots=True)
class Filled:
    """A workload whose products have times, and the answer for each product, with how many rows have it."""

    workload: Workload
    answers: dict[Gemm, Answer]
    rows: dict[Gemm, int]

    def lines(self) -> Iterable[str]:
        """The notes for the user on the answers."""
        ways = Counter(answer.how for answer in self.answers.values())
        yield f"{len(self.answers)} products in {sum(self.rows.values())} rows: " + ", ".join(
            f"{count} {how}" for how, count in ways.items()
        )
        bounded = {gemm: answer for gemm, answer in self.answers.items() if not isinf(answer.error)}
        if bounded:
            worst = max(bounded, key=lambda gemm: bounded[gemm].error)
            yield f"largest error bar: {bounded[worst].error:.1%}, of {worst.op} {worst.shape}"
        if len(bounded) < len(self.answers):
            yield f"{len(self.answers) - len(bounded)} products have a lower bound alone"


def fill(workload: Workload, times: ComputeTimes, device: str, dtype: str) -> Filled:
    """Each product's row with its time on a device, rounded to whole ns.

    Raises:
        AicbError: the workload has no products, or one of them has no time.
    """
    tally = workload.rows.tally()
    answers = {gemm: times.look_up(device, gemm.op, gemm.shape, dtype) for gemm in gemms_of(tally)}
    if not answers:
        raise AicbError(
            "the workload has no computation rows; generate --dialect aicb --computation_enable writes them"
        )
    rows: Counter[Gemm] = Counter()
    for item, count in tally.items():
        found = gemm_of(item)
        if found is not None:
            rows[found] += count

    def timed(item: LogItem) -> LogItem:
        gemm = gemm_of(item)
        return item if gemm is None else replace(item, elapsed_time=round(answers[gemm].ns))

    return Filled(Workload(workload.rows.map(timed), workload.args), answers, dict(rows))
