"""Holds the verbs of `python -m simulation` and the options that several of them have."""

from common.command_line import Program, VerbParser, new_path
from simulation.common.dialect import DEFAULT_DIALECT, DIALECTS

# A verb: its module, with add_arguments(parser) and run(arguments) -> Summary; its help.
VERBS = {
    "topology": (
        "simulation.topology.command",
        "describe a cluster's network: SimAI's templates, NVLink racks, or your own description",
    ),
    "flows": (
        "simulation.flows.options simulation.flows.command",
        "cut collectives into flows between GPUs, as SimCCL does: rings, trees, NVLS, PAT, PXN",
    ),
    "topology show": (
        "simulation.topology.show_command",
        "say what a topology file describes: nodes, links, rails, oversubscription, bisection, and what is odd",
    ),
    "topology edit": (
        "simulation.topology.edit_command",
        "make a what-if of a topology file: slower links, cut links, slow GPUs",
    ),
    "topology draw": (
        "simulation.topology.draw_command",
        "draw a topology file of at most 128 GPUs as SVG",
    ),
    "topology export": (
        "simulation.topology.export_command",
        "write a topology file in InfraGraph's format, as YAML or JSON",
    ),
    "topology import": (
        "simulation.topology.import_command",
        "make a topology file of one in InfraGraph's format",
    ),
    "analytical": (
        "simulation.analytical.options simulation.analytical.command",
        "compute the time of a training iteration from a workload, in closed form",
    ),
    "network": (
        "simulation.network.command",
        "simulate a job's network packet by packet: queues, ECN, PFC, errors, and how sure the result is",
    ),
    "predict": (
        "simulation.predict.command",
        "predict an iteration's time and memory on real GPUs, and whether it fits",
    ),
    "sweep": (
        "simulation.predict.sweep_command",
        "rank the layouts of a model over GPUs: only those that fit, by predicted time",
    ),
}


def _add_common(parser: VerbParser) -> None:
    if " " not in parser.verb:
        parser.add_argument("--output", type=new_path, metavar="FILE", help="where to write; - is stdout")
        parser.add_argument("--dialect", choices=DIALECTS, default=DEFAULT_DIALECT, help="default: %(default)s")


PROGRAM = Program(
    module="simulation",
    purpose="Simulates AI clusters on a laptop, without a GPU.",
    verbs=VERBS,
    common=_add_common,
)
main = PROGRAM.main
