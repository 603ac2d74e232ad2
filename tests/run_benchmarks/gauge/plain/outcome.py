"""Outcome of the gauge: one metric, and a word of its own in each place."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from protocol.default_outcome import DefaultOutcome
from protocol.outcome import (
    Assessment,
    Block,
    MeasuredCase,
    MeasuredRound,
    Metric,
    Paragraph,
    Preformatted,
    Table,
    TableCell,
)


class GaugeOutcome(DefaultOutcome):
    """Outcome of a gauge: nothing but its setting."""

    def conditions(self, case: MeasuredCase) -> Mapping[str, JsonValue]:
        """None: the setting is what is measured."""
        return {}

    def assess(self, case: MeasuredCase, rounds: Sequence[MeasuredRound]) -> Assessment:
        """One sentence and one warning."""
        turns = [each.metrics["turns(tps)"] for each in rounds]
        return Assessment(sentences=(f"the gauge turned at {turns} tps",), warnings=("the gauge is made up",))

    def console(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """A line."""
        return (Preformatted(text=f"gauge of {case.name}, round {measured.number}: {len(measured.steps)} steps"),)

    def report(self, case: MeasuredCase, measured: MeasuredRound) -> Sequence[Block]:
        """A sentence and a table."""
        rows = tuple((TableCell(value=str(each["step"])), TableCell(value=each["turns"])) for each in measured.steps)
        hosts = ", ".join(measured.hosts.values())
        return (
            Paragraph(text=f"turned on <{hosts}>"),
            Table(title="turns of each step", columns=("step", "turns"), rows=rows),
        )


OUTCOME = GaugeOutcome((Metric(name="turns(tps)", unit="turns/s", better="higher", is_key=True),))
