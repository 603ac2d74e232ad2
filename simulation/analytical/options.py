"""The options of `python -m simulation analytical`: SimAI's names, their long forms, and ours."""

import argparse
from pathlib import Path

from common.command_line import new_path
from simulation.analytical.schedules import CLOSED, SCHEDULES

RATE = "450GBps or 3600Gbps; a number alone is GB/s"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add all options. Values stay text, so that all mistakes are reported together."""
    parser.add_argument("-w", "--workload", type=Path, metavar="FILE", help="SimAI text, AICB CSV or Chakra trace")
    _add_cluster(parser.add_argument_group("cluster"))
    _add_overlaps(parser.add_argument_group("share of communication hidden behind computation, 0 to 1"))
    _add_output(parser.add_argument_group("output"))
    _add_division(parser.add_argument_group("division and pipeline, where the workload does not say it or is wrong"))


def _add_cluster(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("-n", "--network", type=Path, metavar="FILE", help="a topology file, instead of all below but -busbw")
    add("-g", "--gpus", metavar="N", help="GPUs in all")
    add("-g_p_s", "--gpus-per-server", metavar="N", help="GPUs of an NVLink domain, such as 8 or 72")
    add("-n_p_s", "--nic_per_server", "--nic-per-server", metavar="N", help="NICs of a server")
    add("-nv", "--nvlink", metavar="RATE", help=f"NVLink bus bandwidth of a GPU, instead of -g_type's: {RATE}")
    add("-nic", "--nic_busbw", "--nic-busbw", metavar="RATE", help=f"bandwidth of one NIC, instead of -nic_t's: {RATE}")
    add("-g_type", "-gt", "--gpu_type", "--gpu-type", dest="gpu_type", metavar="TYPE", help="A100, H100, B200, ...")
    add("-nic_t", "--nic_type", "--nic-type", metavar="TYPE", help="cx6, cx7, cx8 or bf3 (default: cx7)")
    add("-busbw", "--bus-bandwidth", dest="busbw", type=Path, metavar="FILE.yaml", help="measured bus bandwidths")


def _add_overlaps(group: "argparse._ArgumentGroup") -> None:
    for name, default in (("dp", "0"), ("tp", "0"), ("ep", "0"), ("pp", "0; with --dialect simai 1")):
        flags = (f"-{name}_o", f"--{name}_overlap", f"--{name}-overlap-ratio")
        text = f"of {name.upper()} (default: {default})"
        group.add_argument(*flags, dest=f"{name}_overlap", metavar="RATIO", help=text)


def _add_output(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("-r", "--result", metavar="PREFIX", help="write PREFIX + EndToEnd.csv (and .json)")
    add("-r_f", "--result_folder", "--result-folder", type=new_path, metavar="FOLDER", help="the folder of PREFIX")
    add("-v", "--visual", nargs="?", const="1", default="0", metavar="1", help="also write PREFIX + chart.html")
    add("-l", "--lang", choices=("en", "ja"), help="accepted for SimAI's sake; messages are English")
    add("--explain", metavar="ROW", help="explain a row, counted from 1, and write nothing")
    text = "leave a repair of the original's mistakes out (docs/reference/simulation.md lists them)"
    add("--without", action="append", default=[], metavar="REPAIR", help=text)


def _add_division(group: "argparse._ArgumentGroup") -> None:
    add = group.add_argument
    add("--tp", metavar="N", help="size of a tensor-parallel group")
    add("--ep", metavar="N", help="size of an expert-parallel group")
    add("--pp", metavar="N", help="pipeline stages")
    add("--ga", metavar="N", help="micro-batches of an iteration")
    add("--vpp", metavar="N", help="model chunks of a stage; AICB writes the layers of a stage there")
    add("--schedule", choices=SCHEDULES, default=CLOSED, help="how micro-batches run (default: the closed formula)")
    text = "which group a Chakra trace's process group is, such as 7=DP"
    add("--group", action="append", default=[], metavar="NAME=GROUP", help=text)
