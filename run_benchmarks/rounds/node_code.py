"""Ensures that a round runs the plan's code: copies it again before the round if it differs, compares it afterwards."""

from __future__ import annotations

from run_benchmarks.inspection import code_folder
from run_benchmarks.state.context import RunContext, RunningNode


def put_code_right(node: RunningNode, context: RunContext, seconds: float) -> None:
    """Copy the code again if its folder changed since the check, or the host came back with a different one."""
    code, path = context.code, context.plan.code_dir_host
    node.host.connect()
    if found := code_folder.compare(node.host, code, path):
        node.warnings.append(code_folder.in_words(node.plan.host, found))
        code_folder.bring(node.host, code, path, deadline=seconds, cancel=context.interruption.signalled)


def note_changed_code(node: RunningNode, context: RunContext, *, is_resumed: bool) -> None:
    """Fail a round whose code was edited while it ran: it measured something else.

    An additional file counts, too: Python imports it in place of a module of the standard library.
    """
    found = code_folder.compare(node.host, context.code, context.plan.code_dir_host)
    facts = context.reports[node.plan.host].facts
    if is_resumed and facts is not None:
        found = found or code_folder.differences(context.code, facts.code_listing)
    node.code_digest = None if found else context.code.digest
    if found:
        problem = f"its code was changed during the round: {code_folder.few(found)}"
        node.outcome.error = node.outcome.error or problem
