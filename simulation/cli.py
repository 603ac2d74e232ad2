"""Holds the verbs of `python -m simulation` and the options that several of them have."""

from pathlib import Path

from common.command_line import Program, VerbParser
from simulation.common.dialect import DEFAULT_DIALECT, DIALECTS

# A verb is one line here and a module with HELP, add_arguments(parser) and run(arguments) -> Summary.
VERBS = {
    "topology": "simulation.topology.command",
    "flows": "simulation.flows.command",
    "topology show": "simulation.topology.show_command",
    "topology edit": "simulation.topology.edit_command",
    "topology draw": "simulation.topology.draw_command",
    "topology export": "simulation.topology.export_command",
    "topology import": "simulation.topology.import_command",
    "analytical": "simulation.analytical.command",
    "network": "simulation.network.command",
    "predict": "simulation.predict.command",
    "sweep": "simulation.predict.sweep_command",
}


def _add_common(parser: VerbParser) -> None:
    if " " not in parser.verb:
        parser.add_argument("--output", type=Path, metavar="FILE", help="where to write; - is stdout")
        parser.add_argument("--dialect", choices=DIALECTS, default=DEFAULT_DIALECT, help="default: %(default)s")


PROGRAM = Program(
    module="simulation",
    purpose="Simulates AI clusters on a laptop, without a GPU.",
    verbs=VERBS,
    common=_add_common,
)
main = PROGRAM.main
