"""The options of the verb `trace`: those of `generate`, and what only a trace has."""

import argparse

from common.command_line import VerbParser, new_path
from workloads import options
from workloads.trace import checks
from workloads.trace.job import NAMES

IMPLIED = {"frame", "model_name", "global_batch", "moe_enable"}
"""Parameters that other fields of a job say."""


def depths(text: str) -> tuple[int, int]:
    """Two depths from `2,4`.

    Raises:
        ValueError: the text is none.
    """
    first, second = map(int, text.split(","))
    if not 1 <= first < second:
        raise ValueError(text)
    return first, second


depths.__name__ = "pair of depths like 2,4"


def add_arguments(parser: VerbParser) -> None:
    """Add the options. Only what the user sets ends up in the parsed namespace."""
    ours = NAMES | IMPLIED
    options.add_to(parser, hidden={*options.idle_in("framework", "csv"), *options.OPTIONS} - ours)
    own = parser.add_argument_group("trace")
    frame = next(action for action in parser._actions if action.dest == "frame")
    frame.choices = checks.FRAMES
    frame.help = f"what is traced: {', '.join(checks.FRAMES)} (default: Megatron)"
    own.add_argument(
        "--output", type=new_path, required=True, metavar="FILE", help="where to write; a file for each stage"
    )
    who = own.add_mutually_exclusive_group()
    who.add_argument("--rank", type=int, metavar="R", default=argparse.SUPPRESS, help="the rank (default: 0)")
    who.add_argument("--pp_stage", type=int, metavar="S", default=argparse.SUPPRESS, help="this stage's first rank")
    who.add_argument(
        "--all_stages", action="store_true", default=argparse.SUPPRESS, help="the first rank of each stage"
    )
    own.add_argument(
        "--micro_batches", dest="num_microbatches", type=int, metavar="N", default=argparse.SUPPRESS,
        help="micro-batches of an iteration (default: as many as global_batch gives, without it one a pipeline stage)",
    )  # fmt: skip
    own.add_argument(
        "--layers_traced", type=depths, metavar="A,B", default=argparse.SUPPRESS,
        help="trace A and B layers a stage (or virtual stage), infer the job's and prove it with B + 1 layers",
    )  # fmt: skip
    own.add_argument(
        "--iterations", type=options.whole, metavar="N", default=argparse.SUPPRESS,
        help="how many are recorded (default: 1; DeepSpeed: 3)",
    )  # fmt: skip
    own.add_argument(
        "--own_groups", type=options.truth, metavar="BOOL", nargs="?", const=True, default=argparse.SUPPRESS,
        help="make the process groups of this rank alone; the trace is the same",
    )  # fmt: skip
