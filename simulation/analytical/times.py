"""Times of rows and their sums, which every model gives."""

from typing import NamedTuple, Protocol

from common.summary import JsonValue
from simulation.analytical.workload import Cells
from workloads.formats.simai_text import DP, DP_EP, EP, TP

BUCKETS = (DP, DP_EP, TP, EP)
ROW_COLUMNS = (
    "layer_name", "Analytical_test", "fwd compute", "wg compute", "ig compute", "fwd exposed comm", "wg exposed comm",
    "ig exposed comm", "fwd total comm", "algbw", "busbw", "wg total comm", "algbw", "busbw", "ig total comm", "algbw",
    "busbw",
)  # fmt: skip
SUMMARY_COLUMNS = (
    "File name", "Expose DP comm", "Expose DP_EP comm", "Expose TP comm", "Expose_EP_comm", "Expose_PP_comm",
    "bubble time", "total comp", "total exposed comm", "Total time",
)  # fmt: skip


class PhaseTime(NamedTuple):
    """Times in ns of one phase; bucket: the summary's column that its exposed communication is counted in."""

    compute: int
    communication: int
    exposed: int
    bucket: str


class RowTime(NamedTuple):
    """The three phases of a row; `cells`: what the CSV says of them, without the layer's name.

    passes: its part, in ns, in what a pipeline stage repeats for each micro-batch; forward_pass: the forward's of it.
    """

    forward: PhaseTime
    input_gradient: PhaseTime
    weight_gradient: PhaseTime
    cells: str
    passes: int
    forward_pass: int


class Totals(NamedTuple):
    """Sums over all rows in us. exposed: by bucket. passes: what a pipeline stage repeats for each micro-batch.

    forward_passes: the forward phases' part of it.
    """

    exposed: dict[str, float]
    exposed_all: float
    computation: float
    passes: float
    forward_passes: float


class Overview(NamedTuple):
    """The summary in us; `exposed` by bucket, `total` is the iteration's time."""

    exposed: dict[str, float]
    pipeline: float
    bubble: float
    computation: float
    exposed_all: float
    total: float

    def values(self) -> tuple[float, ...]:
        """In the order of SUMMARY_COLUMNS, without the name and the total."""
        by_bucket = tuple(self.exposed[bucket] for bucket in BUCKETS)
        return (*by_bucket, self.pipeline, self.bubble, self.computation, self.exposed_all)


class Model(Protocol):
    """A way to compute times: the original's or ours. meaningless: a time came out that is none."""

    meaningless: bool

    def row(self, rest: Cells) -> RowTime:
        """The times of a row, from its cells without the name; a mistake in them is a ValueError."""

    def overview(self, totals: Totals) -> Overview:
        """The summary of an iteration."""

    def explain(self, rest: Cells) -> dict[str, JsonValue]:
        """Every input that decided the times of a row."""
