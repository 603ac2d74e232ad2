"""The options of `python -m simulation flows`; names that SimCCL's command has are taken, too."""

import argparse
from pathlib import Path

from common.command_line import new_path
from common.units import SIZE_FORM
from simulation.flows.names import AUTO, BETWEEN, EVERY_ALGORITHM, EVERY_KIND, OPS

DEFAULT_SERVER = 8
DEFAULT_GPU = "H100"
RATE = "450GBps or 3600Gbps; a number alone is GB/s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options. Values stay text where all mistakes are reported together."""
    add = parser.add_argument
    add("-w", "--workload", type=Path, metavar="FILE", help="a SimAI workload: the flows of all its collectives")
    add("--op", metavar="OP", help=f"{', '.join(OPS)}")
    add("--size", metavar="BYTES", help=f"bytes of the whole buffer: {SIZE_FORM}")
    add("--group", metavar="KIND", help=f"{', '.join(EVERY_KIND)} (default: TP)")
    add("--ranks", "--nRanks", type=int, metavar="N", help="GPUs of the job (default with -w: what its header says)")
    add("--gpus-per-server", "--gpus_per_node", type=int, metavar="N", help=f"default: {DEFAULT_SERVER}")
    add("--nNodes", dest="servers", type=int, metavar="N", help="servers, if you want them checked")
    add(
        "--tp", type=int, metavar="N", help="tensor-parallel size (default: for TP groups all ranks of a stage, else 1)"
    )
    add("--pp", type=int, metavar="N", help="pipeline stages (default: 1)")
    add("--ep", type=int, metavar="N", help="expert-parallel size (default: 1)")
    add("--rank", type=int, metavar="N", help="the group that holds this rank (default: 0)")
    add("--algorithm", default=AUTO, metavar="NAME", help=f"{', '.join(EVERY_ALGORITHM)} (default: by modelled time)")
    add(
        "--between",
        default=AUTO,
        choices=(AUTO, *BETWEEN),
        help="what joins servers in NVLS (default: auto)",
    )
    add("--pxn", action="store_true", help="leave a server on the receiver's rail, over the neighbour that sits on it")
    add("-n", "--network", type=Path, metavar="FILE", help="a topology file: its GPUs, servers and GPU type")
    add(
        "--gpu-type",
        "--gpu_type",
        metavar="NAME",
        help=f"for modelled times (default: -n's, else {DEFAULT_GPU})",
    )
    add("-nv", "--nvlink", metavar="RATE", help=f"of a GPU's NVLink in one direction: {RATE}")
    add("-nic", "--nic-bandwidth", metavar="RATE", help=f"of a NIC: {RATE}")
    add("--distinct", action="store_true", help="with -w: write equal collectives once")
    add("--rings", type=new_path, metavar="FILE", help="write the group's rings too")
    add("--trees", type=new_path, metavar="FILE", help="write the group's trees too")
    add("--groups", type=new_path, metavar="FILE", help="write all groups too")
