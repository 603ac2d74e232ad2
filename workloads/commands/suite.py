"""Writes the ten workloads of the AICB specification 1.1: the verb `suite`."""

import argparse
from pathlib import Path

from common.command_line import VerbParser, new_folder
from common.summary import Summary
from workloads.commands.generate import add_dialect
from workloads.commands.suite_rows import row_list, write_all


def add_arguments(parser: VerbParser) -> None:
    """Add the options of the suite: GPUs, rows of the specification, where its files go."""
    parser.add_argument("--world_size", type=int, required=True, metavar="N", help="GPUs in all")
    parser.add_argument("--rows", type=row_list, metavar="1,2,..", help="only these rows of the specification")
    parser.add_argument(
        "--output_dir", type=new_folder, default=Path("results/suite"), metavar="DIR", help="default: %(default)s"
    )
    parser.add_argument("--target", choices=("csv", "simai"), default="csv", help="default: %(default)s")
    parser.add_argument(
        "--num_microbatches", type=int, metavar="N", help="micro-batches a rank runs (default: one a pipeline stage)"
    )
    add_dialect(parser)


def run(arguments: argparse.Namespace) -> Summary:
    """Write the workload of each row of the specification."""
    written = write_all(**vars(arguments))
    return Summary("\n".join(each.line for each in written), {"files": [str(each.path) for each in written]})
