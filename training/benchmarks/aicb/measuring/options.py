"""The options of the verb `aiob`: those of `generate`, and how it is measured."""

from common.command_line import VerbParser, new_file, new_path
from training.benchmarks.aicb.measuring.job import PRECISIONS
from workloads import dialects, options

ATTENTIONS = ("auto", "transformer_engine", "flash_attention_2", "sdpa", "unfused")


def add_arguments(parser: VerbParser) -> None:
    """Add the options."""
    options.add_to(parser)
    own = parser.add_argument_group("measuring")
    own.add_argument(
        "--dialect", choices=dialects.names(), default=dialects.DEFAULT_DIALECT,
        help="whose models -m names (default: %(default)s)",
    )  # fmt: skip
    own.add_argument(
        "--output",
        type=new_path,
        required=True,
        metavar="FILE",
        help="AICB's description file; FILE.json is written beside it",
    )
    own.add_argument("--database", type=new_file, metavar="FILE", help="add the times to this database (see compute)")
    own.add_argument(
        "--device", default="auto", help="auto, cpu, or torch's name of an accelerator (default: %(default)s)"
    )
    own.add_argument("--precision", choices=PRECISIONS, help="type of the operands (default: that of --dtype)")
    own.add_argument(
        "--attention", default="auto", choices=ATTENTIONS, help="kernel of the core (default: the first that works)"
    )
    own.add_argument("--iterations", type=int, default=10, metavar="N", help="samples (default: %(default)s)")
    own.add_argument(
        "--warm_up", type=int, default=50, metavar="N", help="most calls until five differ by under 3 %% (default: 50)"
    )
    own.add_argument(
        "--seconds",
        type=float,
        default=20.0,
        metavar="S",
        help="longest warm-up of one part, in s (default: %(default)s)",
    )
    own.add_argument("--threads", type=int, metavar="N", help="threads of a CPU (default: torch's own choice)")
