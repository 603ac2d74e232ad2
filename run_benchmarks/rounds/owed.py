"""Continues an earlier collection: what it brought stays as recorded, what it could not bring is judged with it now."""

from collections.abc import Collection, Mapping
from typing import Any

from protocol.finding import PartFinding
from protocol.node_record import NODE_EXIT_FILE
from run_benchmarks.errors import ClusterDynoError, CollectError, ConnectError, DeadlineError, LinkLostError
from run_benchmarks.results.records import RoundRecord
from run_benchmarks.results.remarks import Integrity
from run_benchmarks.rounds.collect import recorded_output
from run_benchmarks.rounds.integrity import FILE_SYSTEMS, OTHER_RUNS
from run_benchmarks.state.context import RunningNode


def is_owed(error: ClusterDynoError) -> bool:
    """Whether a later collection may bring what this error of one kept: the way to the host failed, or our disk."""
    cause = error.__cause__ if isinstance(error, CollectError) else error
    return isinstance(cause, LinkLostError | ConnectError | DeadlineError | OSError)


def restore_recorded(
    nodes: Mapping[str, RunningNode], recorded: RoundRecord, again: Collection[str], framework: str
) -> None:
    """Restore what an attempt's record says of these nodes; of those that are collected `again`, the clock alone."""
    for part in recorded.nodes:
        if part.host not in nodes:
            continue
        node = nodes[part.host]
        node.outcome.clock_offset = part.clock_offset_seconds
        if part.host not in again:
            node.outcome.files, node.outcome.incomplete = part.files, part.incomplete
            node.outcome.left_behind = tuple(part.missing)
            node.outcome.output = recorded_output(node.outcome.folder, framework)
            node.code_digest = part.code_digest


def take_recorded_end(node: RunningNode) -> None:
    """The end of a node that was out of reach then, by its own record, which is here now."""
    record = node.outcome.exit_record()
    if node.outcome.exit_code is None and not node.outcome.stopped and record is not None and record.exit_code == 0:
        node.warnings.append(f"{node.outcome.error}; {NODE_EXIT_FILE} says that its tasks ended with 0")
        node.outcome.exit_code, node.outcome.error = 0, None


def with_recorded(record: RoundRecord, recorded: RoundRecord) -> RoundRecord:
    """A record of a later collection, with what only the first one saw."""
    whole = [node.host for node in record.nodes if not node.incomplete]
    outdated = tuple(f"{host}: not collected" for host in whole)
    kept = [each for each in recorded.warnings if each not in record.warnings and not each.startswith(outdated)]
    update: dict[str, Any] = {"finished_ms": recorded.finished_ms, "warnings": [*kept, *record.warnings]}
    then, now = recorded.integrity, record.integrity
    if then is not None and now is not None:
        new = [remark for remark in now.remarks if remark not in then.remarks]
        unseen = [each for each in then.unwatched if each.startswith((OTHER_RUNS, FILE_SYSTEMS))]
        update["integrity"] = Integrity(remarks=[*then.remarks, *new], unwatched=[*unseen, *now.unwatched])
    return record.model_copy(update=update)


def stored_findings(recorded: RoundRecord) -> list[PartFinding]:
    """The file systems that ran full or became read-only in a round that is recorded: later looks do not see them."""
    return [each for each in recorded.findings if each.kind == "file_system"]
