"""Says how a node of a round failed as a whole: its host lost, its task ended from outside, its launcher gone."""

from collections.abc import Sequence
from dataclasses import dataclass

from protocol.circumstance import CircumstanceKind
from protocol.node_record import NodeExit
from run_benchmarks.errors import tail
from run_benchmarks.results.first_failure import FirstFailure
from run_benchmarks.results.node_outcome import NodeOutcome

NAMED = 4  # further nodes in one sentence
MAX_CHARACTERS = 600  # of what is said of one node


@dataclass(frozen=True, kw_only=True)
class BrokenNode:
    """A node that failed as a whole; `words` follow its host's name.

    `at`: the time by which it certainly had, in epoch seconds of the head node's clock, infinite if nobody knows;
    `heard`: the last time at which it certainly had not, where it fell silent.
    """

    outcome: NodeOutcome
    words: str
    at: float
    heard: float | None

    @property
    def is_silent(self) -> bool:
        """Whether it fell silent: the head node knows no more of its end than two times around it."""
        return self.heard is not None

    @property
    def host(self) -> str:
        """Its host's name."""
        return self.outcome.node.host


def broken_node(outcome: NodeOutcome, *, began: bool) -> BrokenNode | None:
    """How a node broke whose ranks say nothing of it; None if it did not. `began`: its ranks had logged something.

    What this run stopped is not broken, unless it was held still before.
    """
    record = outcome.exit_record()
    if outcome.stopped and not outcome.lost:
        found = outcome.circumstance(CircumstanceKind.PAUSED)
        if found is None:
            return None
    elif outcome.error is None and outcome.exit_code in (0, None):
        return None
    at = float("inf") if outcome.silent_ms is None else outcome.silent_ms / 1000
    if outcome.stopped and outcome.look is not None:
        at = outcome.look.ranks.written_ms / 1000 - outcome.clock_offset
    elif record is not None and not outcome.lost:
        at = record.finished_ms / 1000 - outcome.clock_offset
    # Of a lost host the record of its end comes later, if at all, with a later collection.
    is_told = record is None or outcome.lost
    heard = outcome.heard_ms / 1000 if outcome.heard_ms is not None and is_told else None
    return BrokenNode(outcome=outcome, words=_words(outcome, record, began), at=at, heard=heard)


def in_order(nodes: Sequence[BrokenNode]) -> list[BrokenNode]:
    """The nodes in the order in which they broke: one that fell silent by when it was last heard."""
    return sorted(nodes, key=lambda node: node.at if node.heard is None else node.heard)


def failure_of(first: BrokenNode, others: Sequence[BrokenNode]) -> FirstFailure:
    """The failure of a round because of its first broken node; `others` broke later, in this order."""
    outcome = first.outcome
    message, evidence = first.words, [_line(first)]
    for other in others[:NAMED]:
        message += f"; {_after(first, other)}{other.host}: {other.words}"
    if len(others) > NAMED:
        message += f"; and {len(others) - NAMED} more hosts"
    evidence += [_line(other) for other in others]
    return FirstFailure(
        host=first.host,
        rank=None,
        exit_code=None if outcome.stopped else outcome.exit_code,
        signal=None,
        message=message,
        log_tail=tail(outcome.output),
        evidence=evidence if first.is_silent or others else [],
        lost=outcome.is_lost,
    )


def _line(node: BrokenNode) -> str:
    when = (
        "" if node.heard is None else f"; last heard at {node.heard:.3f}, silent at {node.at:.3f} (head node's clock)"
    )
    return f"{node.host}: {node.words}{when}"


def _after(first: BrokenNode, other: BrokenNode) -> str:
    """How much later another node broke, if that is known."""
    times = [node.at if node.heard is None else node.heard for node in (first, other)]
    seconds = times[1] - times[0]
    return f"{seconds:.0f} s later " if 1.0 <= seconds < float("inf") else ""


def _words(outcome: NodeOutcome, record: NodeExit | None, began: bool) -> str:
    """The facts about the end of a node: its circumstances, then what the controller or the launcher says."""
    found = [each.words for each in outcome.circumstances]
    error = outcome.error or (record.error if record else None)
    if error is not None:
        found.append(error.removeprefix(f"{outcome.node.host}: "))
    elif not found:
        found.append(_unexplained(outcome, record, began))
    text = " ".join("; ".join(found).split())
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS // 2]} ... {text[-MAX_CHARACTERS // 2 :]}"


def _unexplained(outcome: NodeOutcome, record: NodeExit | None, began: bool) -> str:
    when = "after its ranks had begun" if began else "before its ranks ran"
    if record is not None and record.signal is not None:
        return f"its launcher was ended by {record.signal} {when}, and not by this run"
    if not began:
        return f"the task failed {when}"
    said = (outcome.output.strip().splitlines() or ["it left no output"])[-1]
    return f"its launcher ended {when}{'' if record else ' and left no record'}: {said}"
