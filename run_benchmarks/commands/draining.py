"""Brings the drain list of a run to Slurm or Kubernetes, and takes back from Slurm only what it says of that run."""

import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from common.summary import Answer
from run_benchmarks.console.console import complain, say
from run_benchmarks.console.language import words
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.hosts.slurm.absence import answered
from run_benchmarks.hosts.slurm.client import SlurmError, call
from run_benchmarks.hosts.slurm.nodes import MARK, NodeState, states_of
from run_benchmarks.results.records import DrainRecord, RunRecord, load_record
from run_benchmarks.state.exit_codes import EXIT_FAIL, EXIT_PASS

NODE = re.compile(r"(?!all$)[a-z0-9][a-z0-9._-]*", re.IGNORECASE)  # one node: "ALL" and brackets mean several
MAX_REASON = 400
NOT_ALLOWED = ("Invalid user id", "ermission denied", "Access/permission")


def drain_list(folder: Path) -> list[DrainRecord]:
    """The drain list of a run, whose record may come from anybody.

    Raises:
        InputProblems: run.json cannot be read, or names what is no single node.
    """
    file = folder / "run.json"
    try:
        listed = load_record(file, RunRecord).drain
    except (OSError, ValidationError) as error:
        raise InputProblems([Problem(str(file), "drain", "", f"a record of a run that ended: {error}")]) from error
    allowed = "the name of one node"
    several = [each.host for each in listed if not NODE.fullmatch(each.host)]
    if several:
        raise InputProblems([Problem(str(file), "drain", host, allowed) for host in several])
    return listed


def reason_of(entry: DrainRecord, run: str) -> str:
    """Why a host is drained, in one line that begins with the run, by which `undrain` knows it."""
    text = " ".join(f"{MARK} {run}: {'; '.join(entry.reasons)}".split())
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 3]}..."


def drain_argv(entry: DrainRecord, run: str) -> list[str]:
    """The command that drains a node in Slurm."""
    return ["scontrol", "update", f"nodename={entry.host}", "state=drain", f"reason={reason_of(entry, run)}"]


def commands(listed: Sequence[DrainRecord], run: str) -> Iterator[str]:
    """The lines to run: of Slurm, then of Kubernetes."""
    for entry in listed:
        yield shlex.join(drain_argv(entry, run))
    for entry in listed:
        reason = shlex.quote(f"{MARK}/drained={reason_of(entry, run)}")
        yield f"kubectl cordon {entry.host} && kubectl annotate --overwrite node {entry.host} {reason}"


def _each(listed: Sequence[DrainRecord], action: Callable[[DrainRecord], str]) -> Answer:
    """Do it for each host and say so; exit code 1 where one failed.

    Raises:
        SilentSlurmError: Slurm does not answer.
    """
    done, failed = dict[str, str](), dict[str, str]()
    for entry in listed:
        try:
            with answered():
                done[entry.host] = action(entry)
            say(f"{entry.host}: {done[entry.host]}")
        except SlurmError as error:
            refused = any(word in error.detail for word in NOT_ALLOWED)
            failed[entry.host] = error.detail + (words(": ask a Slurm operator or administrator") if refused else "")
            complain(f"{entry.host}: {failed[entry.host]}")
    return Answer(lambda: {"done": done, "failed": failed}, exit_code=EXIT_FAIL if failed else EXIT_PASS)


def _state(host: str) -> NodeState:
    found = [node for node in states_of([host]) if node.name == host]
    if not found:
        raise SlurmError(["sinfo"], f"Slurm knows no node {host}", is_away=False)
    return found[0]


def _drain(entry: DrainRecord, run: str) -> str:
    node = _state(entry.host)
    if node.is_out_of_service and node.reason:
        return words("left as it is: {state}", state=node.in_words)
    call(drain_argv(entry, run))
    return words("drained")


def _undrain(entry: DrainRecord, run: str) -> str:
    node = _state(entry.host)
    if not node.reason.startswith(f"{MARK} {run}:"):
        return words("left as it is: {state}", state=node.in_words)
    call(["scontrol", "update", f"nodename={entry.host}", "state=resume"])
    return words("in service again")


def drain(folder: Path, *, apply: bool) -> Answer:
    """Drain the hosts of a run's drain list in Slurm, or print the commands that do.

    Raises:
        InputProblems: see `drain_list`.
        SilentSlurmError: Slurm does not answer.
    """
    listed = drain_list(folder)
    if not listed:
        say(words("{run}: no host is to be taken out of service", run=folder.name))
    if apply:
        return _each(listed, lambda entry: _drain(entry, folder.name))
    lines = [*commands(listed, folder.name)]
    return Answer(lambda: {"drain": listed, "commands": lines}, lambda: print(*lines, sep="\n", end="\n" * bool(lines)))


def undrain(folder: Path) -> Answer:
    """Put the hosts back in service that `drain` of this run drained in Slurm.

    Raises:
        InputProblems: see `drain_list`.
        SilentSlurmError: Slurm does not answer.
    """
    return _each(drain_list(folder), lambda entry: _undrain(entry, folder.name))
