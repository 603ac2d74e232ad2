"""Options of run.py that several commands have, and what they ask for."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, get_args

from common.command_line import FunctionVerb, VerbParser
from common.errors import MistakeList
from common.summary import Answer
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.console.language import Language

if TYPE_CHECKING:
    from run_benchmarks.settings.changes import Changes
    from run_benchmarks.settings.host_selection import HostSelection
    from run_benchmarks.settings.settings import Settings

CONFIG = ROOT / "run_benchmarks" / "config"
DEFAULT_CLUSTER = CONFIG / "cluster_conf.py"
DEFAULT_TEST = CONFIG / "test_conf.py"


class Request(NamedTuple):
    """The options of a command line; None and empty if not given."""

    cluster_conf: Path | None
    test_conf: Path | None
    selection: HostSelection
    changes: Changes

    def settings(self) -> Settings:
        """The settings of both files with the changes of the command line.

        Raises:
            InputProblems: a file or a change on the command line is wrong.
        """
        from run_benchmarks.session.preparation import checked_settings  # which takes long to import

        files = self.cluster_conf or DEFAULT_CLUSTER, self.test_conf or DEFAULT_TEST
        return checked_settings(*files, self.changes, self.selection)


def asked_for(arguments: argparse.Namespace) -> Request:
    """The request in the options of `add_files` or `add_selection`."""
    from run_benchmarks.settings.changes import Changes
    from run_benchmarks.settings.host_selection import HostSelection

    given = vars(arguments)
    return Request(
        cluster_conf=given.get("cluster_conf"),
        test_conf=given.get("test_conf"),
        selection=HostSelection(hosts=given.get("hosts"), exclude=given.get("exclude")),
        changes=Changes(
            sets=tuple(given.get("set") or ()), cases=tuple(given.get("case") or ()), repeat=given.get("repeat")
        ),
    )


def add_test_conf(parser: VerbParser) -> None:
    """Add the option of a command that needs the file with the cases alone."""
    default = "default: run_benchmarks/config/test_conf.py"
    parser.add_argument("--test-conf", type=Path, metavar="F", help=f"file with the cases; {default}")


def add_files(parser: VerbParser) -> None:
    """Add the two files that a user edits."""
    default = "default: run_benchmarks/config/cluster_conf.py"
    parser.add_argument("--cluster-conf", type=Path, metavar="F", help=f"file with the hosts; {default}")
    add_test_conf(parser)


def add_hosts(parser: VerbParser) -> None:
    """Add the two files, and which hosts take part."""
    add_files(parser)
    parser.add_argument("--hosts", metavar="A,B", help="only these of HOSTS, in this order")
    parser.add_argument("--exclude", metavar="A,B", help="leave out these of HOSTS")


def add_selection(parser: VerbParser) -> None:
    """Add all that selects hosts and cases, and changes settings."""
    add_hosts(parser)
    add = parser.add_argument
    of_set = "a setting of either file, CASE.key=V of a case or CASE.overrides.key=V of its config; repeatable"
    of_case = "only this one of CASES; a pattern (*, ?) matches several; repeatable"
    add("--case", action="append", metavar="NAME", help=of_case)
    add("--set", action="append", metavar="K=V", help=of_set)
    add("--repeat", type=int, metavar="N", help="number of rounds of every case")


def add_run(parser: VerbParser) -> None:
    """Add the run that a command is for."""
    parser.add_argument(
        "run_id", metavar="RUN", help="a run's name, e.g. run20261121191924, or the path of its result folder"
    )


def add_run_and_files(parser: VerbParser) -> None:
    """Add the run, and the two files that stand for those that it was begun with."""
    add_run(parser)
    add_files(parser)


def add_language(parser: VerbParser) -> None:
    """Add the language of what is written."""
    parser.add_argument("--lang", choices=get_args(Language), default="en", help="language of headings and sentences")


def of_a_run(
    run: Callable[[argparse.Namespace, Path], Answer | int], add: Callable[[VerbParser], None] = add_run_and_files
) -> FunctionVerb:
    """A verb of a run that exists. run: what it does with the options and the run's folder; add: its options."""

    def find_and_run(arguments: argparse.Namespace) -> Answer | int:
        from protocol.config_file import text_of
        from run_benchmarks.commands.run_reference import find_run

        mistakes, files = MistakeList(), (getattr(arguments, "cluster_conf", None), arguments.test_conf)
        for file in filter(None, files):
            with mistakes.noted():
                text_of(file)
        folder = mistakes.result(lambda: find_run(arguments.run_id, arguments.test_conf, DEFAULT_TEST))
        mistakes.check()
        return run(arguments, folder)

    return FunctionVerb(add, find_and_run)
