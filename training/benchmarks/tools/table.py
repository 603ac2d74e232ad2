"""The tools of others: how each is called, how its output is read, and which way is better.

`{device}` in a command is an RDMA device, `{gaudi}` the kind of the host's Gaudis. What fails a tool's own test is a
failure; figures are compared with those of the same part of other hosts (outcome.py).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from training.benchmarks.tools.readers import Answer, diagnosis, matrices, patterns, perftest

Scope = Literal["host", "loopback", "pairs", "ring"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool. command: its words; read: the results in what it printed.

    scope: once on a host; on each RDMA device against itself; on each between two hosts (a server without an address, a
    client with one); or on all of all hosts at once, each to the next host of a ring. unit, better: of its figures.
    usual: seconds that a call takes, of each level that its words name (a pattern; the number in its group, if it has
    one), else those of "". seconds: until a call is ended at the earliest. folders: where it may be beside PATH.
    source: the document of command, output and levels.
    """

    command: tuple[str, ...]
    read: Callable[[str], Answer]
    scope: Scope = "host"
    unit: str = ""
    better: Literal["higher", "lower"] = "higher"
    usual: Mapping[str, float]
    seconds: float
    folders: tuple[str, ...] = ()
    source: str

    def usual_seconds(self, words: Sequence[str]) -> float:
        """The seconds that a call with these words usually takes; several levels take their sum."""
        matches = {level: re.search(level, " ".join(words)) for level in self.usual if level}
        found = [float(match[1]) if match.re.groups else self.usual[level] for level, match in matches.items() if match]
        return sum(found) if found else self.usual[""]

    def most_seconds(self, words: Sequence[str]) -> float:
        """The seconds after which a call with these words is ended: a long level has twice its usual time."""
        return max(self.seconds, 2 * self.usual_seconds(words))


_RVS = re.compile(
    r"\[(?P<part>[^\]\s]+\] \[GPU:: [^\]]+)\].*?(?:GFLOPS (?P<value>\d+(?:\.\d+)?) .*)?(?:met|pass): (?P<verdict>\w+)"
)
_TRANSFERS = re.compile(r"Transfer\s+\d+\s*[|│]\s*(?P<value>[\d.]+) GB/s.*[|│]\s*(?P<part>[A-Z]\d+) ->")
_ITEMS = re.compile(
    r"^\s+(?P<part>\w[\w ]*):[ ]*\n\s+(?P<verdict>PASS|SKIP|INFO|FAIL|\w+_WARN)[ ]*$(?P<why>(?:\n\s+\*\*\*.*)*)",
    re.MULTILINE,
)
_JUDGED = re.compile(r"^(?P<part>.*?)\b(?P<verdict>PASSED|FAILED)\b(?P<why>.*)$", re.MULTILINE)
_RUN = r"(?:-r|--run)[ =]?"


def _perftest(program: str, words: str, column: str, scope: Scope) -> Tool:
    """A program of perftest (bandwidth or latency): a server, a client, a moment of traffic, equal in a ring."""
    is_rate, is_ring = column == "BW average", scope == "ring"
    return Tool(
        command=(program, "-d", "{device}", "-F", *words.split(), *(("-D", "10") if is_ring else ("-n", "2000"))),
        read=partial(perftest, column=column),
        scope=scope,
        unit="GB/s" if is_rate else "us",
        better="higher" if is_rate else "lower",
        usual={"": 20.0 if is_ring else 5.0},
        seconds=60,
        source="https://github.com/linux-rdma/perftest, README",
    )


_BANDWIDTH = partial(_perftest, "ib_write_bw", "--report_gbits -s 1048576", "BW average")
_LATENCY = partial(_perftest, "ib_write_lat", "-s 8", "t_typical")

TOOLS: Mapping[str, Tool] = {
    "ib_write_bw_loopback": _BANDWIDTH("loopback"),
    "ib_write_lat_loopback": _LATENCY("loopback"),
    "ib_write_bw": _BANDWIDTH("pairs"),
    "ib_write_bw_ring": _BANDWIDTH("ring"),
    "ib_write_lat": _LATENCY("pairs"),
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
        usual={"": 60.0},
        seconds=300,
        source="https://github.com/NVIDIA/nvbandwidth, README",
    ),
    "dcgmi": Tool(
        command=("dcgmi", "diag", "-r", "2", "-j"),
        read=diagnosis,
        usual={
            rf"{_RUN}(?:1|quick|short)\b": 10.0,
            rf"{_RUN}(?:2|medium)\b": 120.0,
            rf"{_RUN}(?:3|long)\b": 900.0,
            rf"{_RUN}(?:4|xlong)\b": 7200.0,
            "": 900.0,
        },
        seconds=1200,
        source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html"
        " (levels: reference/command-line-reference/dcgmi/dcgmi-diag.html)",
    ),
    "rvs": Tool(
        command=("rvs", "-c", "/opt/rocm/share/rocm-validation-suite/conf/gst_single.conf"),
        read=partial(patterns, pattern=_RVS, good="TRUE true"),
        unit="GFLOPS",
        usual={"": 600.0},
        seconds=1800,
        folders=("/opt/rocm/bin",),
        source="https://rocm.docs.amd.com/projects/ROCmValidationSuite/en/latest/ug1main.html",
    ),
    "TransferBench": Tool(
        command=("TransferBench", "a2a"),
        read=partial(patterns, pattern=_TRANSFERS),
        unit="GB/s",
        usual={"": 60.0},
        seconds=300,
        folders=("/opt/rocm/bin",),
        source="https://rocm.docs.amd.com/projects/TransferBench/en/latest/",
    ),
    "ascend-dmi": Tool(
        command=("ascend-dmi", "--dg", "--se", "healthCheck", "-q"),
        read=partial(patterns, pattern=_ITEMS, good="PASS", idle="SKIP INFO"),
        usual={"healthCheck": 120.0, "performanceCheck": 10_800.0, "stressTest": 12_600.0, "": 900.0},
        seconds=1800,
        folders=("/usr/local/Ascend/toolbox/latest/Ascend-DMI/bin", "/usr/local/bin"),
        source="https://www.hiascend.com/document/detail/en/mindcluster/730/toolbox/toolboxug/toolboxug_0002.html"
        " (levels: toolboxug_0165.html)",
    ),
    "hl_qual": Tool(
        command=("hl_qual", "-{gaudi}", "-c", "all", "-rmod", "parallel", "-f2", "-t", "240", "-dis_mon"),
        read=partial(patterns, pattern=_JUDGED, good="PASSED"),
        usual={r"-t (\d+)\b": 0.0, "": 300.0},
        seconds=1800,
        folders=("/opt/habanalabs/qual/gaudi2/bin", "/opt/habanalabs/qual/gaudi3/bin"),
        source="https://docs.habana.ai/en/latest/Management_and_Monitoring/Qualification_Library/index.html",
    ),
}
