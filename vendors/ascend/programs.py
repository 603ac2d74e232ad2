"""Ascend's own tests of its accelerators: how they are called, and what they print."""

import re
from collections.abc import Mapping
from functools import partial

from vendors.programs import Program, patterns

_ITEMS = re.compile(
    r"^\s+(?P<part>\w[\w ]*):[ ]*\n\s+(?P<verdict>PASS|SKIP|INFO|FAIL|\w+_WARN)[ ]*$(?P<why>(?:\n\s+\*\*\*.*)*)",
    re.MULTILINE,
)

PROGRAMS: Mapping[str, Program] = {
    "ascend-dmi": Program(
        command=("ascend-dmi", "--dg", "--se", "healthCheck", "-q"),
        read=partial(patterns, pattern=_ITEMS, good="PASS", idle="SKIP INFO"),
        usual={"healthCheck": 120.0, "performanceCheck": 10_800.0, "stressTest": 12_600.0, "": 900.0},
        seconds=1800,
        folders=("/usr/local/Ascend/toolbox/latest/Ascend-DMI/bin", "/usr/local/bin"),
        source="https://www.hiascend.com/document/detail/en/mindcluster/730/toolbox/toolboxug/toolboxug_0002.html"
        " (levels: toolboxug_0165.html)",
    ),
}
