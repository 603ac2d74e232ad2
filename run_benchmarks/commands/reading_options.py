"""Options of the commands that read results, lists and other tools' files; their modules are imported when they run."""

from __future__ import annotations

from pathlib import Path

from common.command_line import VerbOptions, VerbParser, new_path
from common.whole_files import STDOUT
from run_benchmarks.commands.options import add_run, add_test_conf
from run_benchmarks.console.command_line import ROOT
from run_benchmarks.export.meanings import MEANINGS

TOPICS = ("vendors", "models", "configs", "settings")


def _add_compare(parser: VerbParser) -> None:
    add = parser.add_argument
    add("first", metavar="A", help="a run, or several separated by commas")
    add("second", metavar="B", nargs="?", help="what is compared with A, likewise")
    add("--baseline", metavar="F", help="compare A with the runs that this baseline was saved of: a file, or its name")
    add("--rules", type=Path, metavar="F", help="what is the same and what fails, in TOML")
    add_test_conf(parser)


def _add_report(parser: VerbParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="names of runs, or paths of their result folders")
    parser.add_argument(
        "--output", type=new_path, metavar="F", required=True, help="the page, outside of the runs' folders"
    )
    add_test_conf(parser)


def _add_show(parser: VerbParser) -> None:
    add_run(parser)
    parser.add_argument("case", metavar="CASE", nargs="?", help="one case with its rounds; default: all")
    add_test_conf(parser)


def _add_export(parser: VerbParser) -> None:
    add_run(parser)
    meanings = "; ".join(f"{name}: {meaning}" for name, meaning in MEANINGS.items())
    parser.add_argument("--format", metavar="NAME", default="csv", help=meanings)
    parser.add_argument("--table", metavar="T", help="of a table: cases, metrics, steps, hosts, findings")
    parser.add_argument("--output", type=new_path, metavar="F", default=STDOUT, help="default: standard output")
    add_test_conf(parser)


def _add_bundle(parser: VerbParser) -> None:
    add_run(parser)
    parser.add_argument("case", metavar="CASE", help="a case of the run")
    parser.add_argument("--output", type=new_path, metavar="F", help="default: RUN-CASE.tar.gz here")
    add_test_conf(parser)


def _add_history(parser: VerbParser) -> None:
    add = parser.add_argument
    add("case", metavar="CASE", nargs="?", help="one case; default: all")
    add("--metric", metavar="M", default="", help="default: the case's key figure")
    add("--host", metavar="H", default="", help="what the case measured of this host")
    add("--output", type=new_path, metavar="F", help="also as a page in this file")
    add("--rebuild", action="store_true", help="read all runs of the result folder again first")
    add_test_conf(parser)


def _add_list(parser: VerbParser) -> None:
    meaning = f"{', '.join(TOPICS)}, or a model: the settings of its case configs; without it, all four"
    parser.add_argument("what", metavar="WHAT", nargs="?", help=meaning)
    parser.add_argument(
        "--markdown", action="store_true", help="settings as a table in Markdown, or a model's in its form"
    )


def _add_import(parser: VerbParser) -> None:
    add = parser.add_argument
    add("tree", type=Path, metavar="DIR", help="FlagPerf's repository, or its folder training")
    add("--output", type=new_path, metavar="DIR", default=ROOT, help="folder of the files; default: this repository")


COMPARE, REPORT, SHOW, HISTORY = map(VerbOptions, (_add_compare, _add_report, _add_show, _add_history))
EXPORT, BUNDLE, LIST, IMPORT = map(VerbOptions, (_add_export, _add_bundle, _add_list, _add_import))
