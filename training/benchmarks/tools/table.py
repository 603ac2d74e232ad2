"""The tools of others: how each is called, how its output is read, and which way is better.

`{device}` in a command is an RDMA device. What fails a tool's own test is a failure; figures are compared with those of
the same part of other hosts (outcome.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from training.benchmarks.tools.readers import Answer, diagnosis, matrices, patterns, perftest

Scope = Literal["host", "loopback", "pairs"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool. command: its words; read: the results in what it printed.

    scope: once on a host; on each RDMA device against itself; or on each between two hosts (a server without an
    address, a client with one). unit, better: of its figures. seconds: until a call is ended. folders: where it may be
    beside PATH. source: the document of command and output.
    """

    command: tuple[str, ...]
    read: Callable[[str], Answer]
    scope: Scope = "host"
    unit: str = ""
    better: Literal["higher", "lower"] = "higher"
    seconds: float
    folders: tuple[str, ...] = ()
    source: str


_RVS = re.compile(
    r"\[(?P<part>[^\]\s]+\] \[GPU:: [^\]]+)\].*?(?:GFLOPS (?P<value>\d+(?:\.\d+)?) .*)?(?:met|pass): (?P<verdict>\w+)"
)
_TRANSFERS = re.compile(r"Transfer\s+\d+\s*[|│]\s*(?P<value>[\d.]+) GB/s.*[|│]\s*(?P<part>[A-Z]\d+) ->")
_ITEMS = re.compile(
    r"^\s+(?P<part>\w[\w ]*):[ ]*\n\s+(?P<verdict>PASS|SKIP|INFO|FAIL|\w+_WARN)[ ]*$(?P<why>(?:\n\s+\*\*\*.*)*)",
    re.MULTILINE,
)
_JUDGED = re.compile(r"^(?P<part>.*?)\b(?P<verdict>PASSED|FAILED)\b(?P<why>.*)$", re.MULTILINE)
_MANUAL = "https://github.com/linux-rdma/perftest, README"
_BANDWIDTH = ("ib_write_bw", "-d", "{device}", "-F", "--report_gbits", "-s", "1048576", "-n", "2000")
_LATENCY = ("ib_write_lat", "-d", "{device}", "-F", "-s", "8", "-n", "2000")
_BETWEEN_BANDWIDTH = partial(perftest, column="BW average")
_BETWEEN_LATENCY = partial(perftest, column="t_typical")

TOOLS: Mapping[str, Tool] = {
    "ib_write_bw_loopback": Tool(
        command=_BANDWIDTH, read=_BETWEEN_BANDWIDTH, scope="loopback", unit="GB/s", seconds=60, source=_MANUAL
    ),
    "ib_write_lat_loopback": Tool(
        command=_LATENCY, read=_BETWEEN_LATENCY, scope="loopback", unit="us", better="lower", seconds=60, source=_MANUAL
    ),
    "ib_write_bw": Tool(
        command=_BANDWIDTH, read=_BETWEEN_BANDWIDTH, scope="pairs", unit="GB/s", seconds=60, source=_MANUAL
    ),
    "ib_write_lat": Tool(
        command=_LATENCY, read=_BETWEEN_LATENCY, scope="pairs", unit="us", better="lower", seconds=60, source=_MANUAL
    ),
    "nvbandwidth": Tool(
        command=(
            "nvbandwidth",
            "-t",
            "host_to_device_memcpy_ce",
            "device_to_host_memcpy_ce",
            "device_to_device_memcpy_read_ce",
        ),
        read=matrices,
        unit="GB/s",
        seconds=300,
        source="https://github.com/NVIDIA/nvbandwidth, README",
    ),
    "dcgmi": Tool(
        command=("dcgmi", "diag", "-r", "2", "-j"),
        read=diagnosis,
        seconds=1200,
        source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
    ),
    "rvs": Tool(
        command=("rvs", "-c", "/opt/rocm/share/rocm-validation-suite/conf/gst_single.conf"),
        read=partial(patterns, pattern=_RVS, good="TRUE true"),
        unit="GFLOPS",
        seconds=1800,
        folders=("/opt/rocm/bin",),
        source="https://rocm.docs.amd.com/projects/ROCmValidationSuite/en/latest/ug1main.html",
    ),
    "TransferBench": Tool(
        command=("TransferBench", "a2a"),
        read=partial(patterns, pattern=_TRANSFERS),
        unit="GB/s",
        seconds=300,
        folders=("/opt/rocm/bin",),
        source="https://rocm.docs.amd.com/projects/TransferBench/en/latest/",
    ),
    "ascend-dmi": Tool(
        command=("ascend-dmi", "--dg", "--se", "healthCheck", "-q"),
        read=partial(patterns, pattern=_ITEMS, good="PASS", idle="SKIP INFO"),
        seconds=1800,
        folders=("/usr/local/Ascend/toolbox/latest/Ascend-DMI/bin", "/usr/local/bin"),
        source="https://www.hiascend.com/document/detail/en/mindcluster/730/toolbox/toolboxug/toolboxug_0002.html",
    ),
    "hl_qual": Tool(
        command=("hl_qual", "-gaudi2", "-c", "all", "-rmod", "parallel", "-f2", "-t", "240", "-dis_mon"),
        read=partial(patterns, pattern=_JUDGED, good="PASSED"),
        seconds=1800,
        folders=("/opt/habanalabs/qual/gaudi2/bin", "/opt/habanalabs/qual/gaudi3/bin"),
        source="https://docs.habana.ai/en/latest/Management_and_Monitoring/Qualification_Library/index.html",
    ),
}
