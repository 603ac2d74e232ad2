"""Simulates a job's network packet by packet: `python -m simulation network`."""

import argparse
from pathlib import Path

from common.command_line import new_path
from common.garbage import without_collection
from common.summary import Summary
from common.units import SIZE_FORM
from simulation.analytical.schedules import ONE_F_ONE_B, PIPELINES
from simulation.common.dialect import SIMAI
from simulation.flows.names import AUTO, ORIGINAL_OPS
from simulation.network.flow_level.port_routes import ECMP, ROUTINGS
from simulation.network.outages import FORM

KINDS = ("TP", "DP", "EP", "DP_EP")
DEFAULT_LATENCY_US = 3.0
PACKET, FLOW = LEVELS = "packet", "flow"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of a simulated network: topology, workloads, level of detail, results."""
    add = parser.add_argument
    add("-n", "--network", type=Path, required=True, metavar="FILE", help="a topology file")
    add(
        "-w",
        "--workload",
        action="append",
        metavar="FILE[@FIRST-LAST]",
        help="a SimAI workload, of which one iteration is simulated; several share the network, each on its GPUs",
    )
    add("--op", choices=ORIGINAL_OPS, help="instead of -w one collective, of all groups of a kind at once")
    add("--size", metavar="BYTES", help=f"with --op: bytes of the whole buffer: {SIZE_FORM}")
    add("--group", choices=KINDS, help="with --op: the kind of groups (default: TP)")
    add("--tp", type=int, metavar="N", help="with --op: tensor-parallel size (default: for TP groups all GPUs, else 1)")
    add("--ep", type=int, metavar="N", help="with --op: expert-parallel size (default: 1)")
    add("--send-lat", type=float, metavar="US", default=DEFAULT_LATENCY_US,
        help="us before each send, AS_SEND_LAT of SimAI (default: %(default)s)")  # fmt: skip
    add("--conf", type=Path, metavar="FILE", help="a SimAI.conf (default: the values of SimAI's own)")
    add(
        "--algorithm",
        choices=(AUTO, "ring", "tree", "nvls"),
        default="ring",
        help="of AllReduce (default: %(default)s)",
    )
    add("--pxn", action="store_true", help="leave a server on the receiver's rail")
    add("--schedule", choices=PIPELINES, default=ONE_F_ONE_B, help="of a pipeline (default: %(default)s)")
    add("--vpp", type=int, metavar="N", help="chunks of a stage, with --schedule interleaved")
    add("--straggler", action="append", default=[], metavar="RANK:FACTOR", help="a rank that computes longer: 3:1.3")
    add("--outage", action="append", default=[], metavar=FORM, help="links that go down and come back (us)")
    add("--fast-forward", action="store_true", help="skip steady states and remember equal contention")
    add("--what-if", type=Path, metavar="RUN_FOLDER",
        help="slow down what a run of the benchmarks found slow; say what it costs")  # fmt: skip
    add("--engine", choices=(SIMAI,), help="also run SimAI's ns-3, which --simulator names, and show both")
    add("--simulator", metavar="CMD", help="with --engine simai: your SimAI_simulator; --conf is its SimAI.conf")
    add("--trace", type=new_path, metavar="FILE.json", help="also write a trace that ui.perfetto.dev shows")
    add("--seed", type=int, metavar="N", help="shuffle simultaneous starts by this seed")
    add("--seeds", type=int, metavar="K", help="simulate K shuffled orders: the band of the result")
    what = "packet: every packet; flow: fair rates, in a fraction of the time (default: %(default)s)"
    add("--level", choices=LEVELS, default=PACKET, help=what)
    what = f"of flows: a hash (ecmp), one way for each place at a leaf (rail), all ways (spread) (default: {ECMP}, "
    what += "rail for more than a million flows)"
    add("--routing", choices=ROUTINGS, help=what)
    add("-r", "--result", default="", metavar="PREFIX", help="what the names of the files begin with")


def find_mistakes(arguments: argparse.Namespace) -> None:
    """Find the mistakes of options and files.

    Raises:
        InputProblems: all of them.
    """
    if arguments.level == FLOW:
        from simulation.network.flow_level.verb import checked as by_flows

        by_flows(arguments)
        return
    from simulation.network.verb import checked

    checked(arguments)


def run(arguments: argparse.Namespace) -> Summary:
    """Simulate packet by packet, or with --level flow by the rates of flows."""
    with without_collection():  # which would look at the objects of all modules and flows again and again
        if arguments.level == FLOW:
            from simulation.network.flow_level.verb import simulated as by_flows

            return by_flows(arguments)
        from simulation.network.verb import simulated

        return simulated(arguments)
