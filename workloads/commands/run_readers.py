"""The options of the verbs that read what ran, `log`, `analyze` and `visualize`, whose modules need numpy."""

from pathlib import Path

from common.command_line import VerbOptions, VerbParser, new_path
from workloads.oplog import UNITS


def _add_log(parser: VerbParser) -> None:
    parser.add_argument("file", type=Path, metavar="LOG", help="a folder of op logs, one of them, or a log CSV")
    parser.add_argument("--rank", type=int, default=0, metavar="N", help="whose log of a folder (default: %(default)s)")
    parser.add_argument("--print_ops", action="store_true", help="also a line for each operation")
    parser.add_argument("--units", choices=UNITS, default="GB", help="GB is 1e9 bytes, GiB AICB's 2**30 (default: GB)")
    parser.add_argument("--csv", type=new_path, metavar="FILE", help="also write a log CSV with AICB's columns")


def _add_analyze(parser: VerbParser) -> None:
    parser.add_argument("first", type=Path, metavar="LOG", help="a folder of op logs, one of each rank")
    parser.add_argument("second", type=Path, nargs="?", metavar="LOG2", help="another run's, to compare with the first")


def _add_visualize(parser: VerbParser) -> None:
    parser.add_argument(
        "file",
        type=Path,
        metavar="LOG|WORKLOAD",
        help="op logs (a folder, or one), a log CSV, a workload CSV or SimAI text",
    )
    parser.add_argument("--output", type=new_path, required=True, metavar="FILE", help="the page to write (.html)")


LOG, ANALYZE, VISUALIZE = map(VerbOptions, (_add_log, _add_analyze, _add_visualize))
