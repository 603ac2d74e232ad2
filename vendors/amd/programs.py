"""AMD's own tests of its accelerators: how they are called, and what they print."""

import re
from collections.abc import Mapping
from functools import partial

from vendors.programs import Program, patterns

_RVS = re.compile(
    r"\[(?P<part>[^\]\s]+\] \[GPU:: [^\]]+)\].*?(?:GFLOPS (?P<value>\d+(?:\.\d+)?) .*)?(?:met|pass): (?P<verdict>\w+)"
)
_TRANSFERS = re.compile(r"Transfer\s+\d+\s*[|│]\s*(?P<value>[\d.]+) GB/s.*[|│]\s*(?P<part>[A-Z]\d+) ->")

PROGRAMS: Mapping[str, Program] = {
    "rvs": Program(
        command=("rvs", "-c", "/opt/rocm/share/rocm-validation-suite/conf/gst_single.conf"),
        read=partial(patterns, pattern=_RVS, good="TRUE true"),
        unit="GFLOPS",
        usual={"": 600.0},
        seconds=1800,
        folders=("/opt/rocm/bin",),
        source="https://rocm.docs.amd.com/projects/ROCmValidationSuite/en/latest/ug1main.html",
    ),
    "TransferBench": Program(
        command=("TransferBench", "a2a"),
        read=partial(patterns, pattern=_TRANSFERS),
        unit="GB/s",
        usual={"": 60.0},
        seconds=300,
        folders=("/opt/rocm/bin",),
        source="https://rocm.docs.amd.com/projects/TransferBench/en/latest/",
    ),
}
