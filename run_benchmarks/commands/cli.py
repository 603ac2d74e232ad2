"""Holds the commands of run.py."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence

from common.command_line import Program
from run_benchmarks import __version__
from run_benchmarks.commands.options import add_language
from run_benchmarks.console.command_line import DEFAULT_RESULTS, ROOT
from run_benchmarks.console.console import complain, guard_console, say
from run_benchmarks.console.language import words
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.state.exit_codes import EXIT_PASS

_VERBS, _READING, _HERE = (f"run_benchmarks.commands{name}" for name in (".verbs", ".reading_options", ""))
# A command: where its options and its run are, see Program; its help.
VERBS = {
    "run": (f"{_VERBS}:RUN", "check the hosts, run every case, collect and report"),
    "accept": (
        f"{_VERBS}:ACCEPT",
        "say which hosts to take out of service, with proof: health, devices, network, a training, each with a gate",
    ),
    "resume": (
        f"{_VERBS}:RESUME",
        "continue a run whose controller was killed: finished rounds are kept, a round that still runs is taken over",
    ),
    "status": (
        f"{_VERBS}:STATUS",
        "show which runs are active, ended or left by a killed controller; asks no host",
    ),
    "attach": (
        f"{_VERBS}:ATTACH",
        "show a run's log as it grows, below it all its cases on a terminal; Ctrl-C does not affect the run."
        " Exits with the run's exit code",
    ),
    "stop": (
        f"{_VERBS}:STOP",
        "end an active run, as SIGTERM does: its tasks on the hosts are stopped, its results so far are kept",
    ),
    "plan": (
        f"{_VERBS}:PLAN",
        "print what a run would do, as JSON, without touching a host; or the settings of its cases, as tables",
    ),
    "check": (f"{_VERBS}:CHECK", "check all hosts in parallel, changing nothing; exit code 3 if one cannot take part"),
    "trust": (f"{_VERBS}:TRUST", "show the host keys of all hosts and record those that are unknown in KNOWN_HOSTS"),
    "diagnose": (
        f"{_VERBS}:DIAGNOSE",
        "find out why hosts cannot communicate: ssh, names, interface, port, gloo, small and full messages",
    ),
    "collect": (
        f"{_VERBS}:COLLECT",
        "collect what a run could not collect from its hosts, and judge those rounds again; starts nothing there",
    ),
    "drain": (
        f"{_VERBS}:DRAIN",
        "print the commands that take a run's bad hosts out of service, in Slurm and in Kubernetes",
    ),
    "undrain": (
        f"{_VERBS}:UNDRAIN",
        "take back what `drain --apply` of this run did in Slurm; nodes that somebody else drained stay as they are",
    ),
    "compare": (
        f"{_READING}:COMPARE {_HERE}.comparing",
        "compare B with A by the spread between runs; exit code 1 if a case became worse or cannot be compared",
    ),
    "report": (
        f"{_READING}:REPORT {_HERE}.reporting",
        "write a page of a run, or of several together, as report.html is one; no log is read",
    ),
    "show": (
        f"{_READING}:SHOW {_HERE}.showing",
        "show a run's verdict, what to do, and a line for each case, those that failed first; or all of one case",
    ),
    "export": (f"{_READING}:EXPORT {_HERE}.exporting", "write a run in the format of another tool"),
    "bundle": (
        f"{_READING}:BUNDLE {_HERE}.bundling",
        "pack a case's logs and records, secrets masked, to send them to a vendor",
    ),
    "history": (
        f"{_READING}:HISTORY {_HERE}.history",
        "show a case over all runs and what changed when its level did; with --host alone a host in all cases",
    ),
    "list": (
        f"{_READING}:LIST {_HERE}.listing",
        "list vendors, models, case configs and settings with what is allowed, their defaults and meaning",
    ),
    "import-flagperf": (
        f"{_READING}:IMPORT {_HERE}.import_flagperf",
        "translate FlagPerf's configs: cluster, tests, cases, their variables and packages; one line for every key",
    ),
    "clean": (
        f"{_VERBS}:CLEAN",
        "remove what a run left on the hosts: its containers or processes and its log folders, nothing of other runs",
    ),
    "verify": (
        f"{_VERBS}:VERIFY",
        "check offline that a result folder is unchanged: its files, numbers and verdicts; exit code 1 if not",
    ),
}


def _operands() -> Mapping[str, Sequence[str]]:
    """The words that may stand for RUN, the runs of the default result folder, and for WHAT, topics and models."""
    from run_benchmarks.commands.reading_options import TOPICS
    from training.benchmarks import catalog

    runs = f"$(compgen -G {shlex.quote(str(DEFAULT_RESULTS))}/'run*' | sed 's|.*/||')"
    return {"RUN": [runs], "WHAT": [*TOPICS, *sorted({model for model, _ in catalog.available()})]}


PROGRAM = Program(
    common=add_language,
    begin=lambda arguments: words.speak(arguments.lang),
    module="run_benchmarks/run.py",
    purpose="Benchmarks the cluster of cluster_conf.py with the cases of test_conf.py. Without a verb: run.\n"
    "Options of run, but for --save-baseline, may stand before a verb that has them. --version: the version.",
    verbs=VERBS,
    default="run",
    controls_hosts=True,
    operands=_operands,
    exit_codes="Exit codes: 0 passed, 1 failed, 2 a mistake in the input, 3 a host failed the check, 130 interrupted, "
    "141 nobody read the output.",
)


def _version() -> str:
    from run_benchmarks.session.revision import revision

    commit = revision(ROOT, ()).name
    return f"ClusterDyno {__version__}" + (f" ({commit})" if commit else "")


def main() -> None:
    """Entry point: a user's mistake is one readable screen and exit code 2."""
    guard_console()
    sys.exit(_main(sys.argv[1:]))


def _main(argv: Sequence[str]) -> int:
    if "--version" in argv:
        say(_version())
        return EXIT_PASS
    try:
        return PROGRAM.main(argv)
    except ClusterDynoError as error:
        if error.ends_with is None:
            raise
        complain(f"error: {error}")
        return error.ends_with
