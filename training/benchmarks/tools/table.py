"""The programs of others that are called: perftest's here, and each vendor's own tests of its devices.

`{device}` in a command is an RDMA device. What fails a program's own test is a failure; figures are compared with those
of the same part of other hosts (outcome.py).
"""

import re
from collections.abc import Mapping
from functools import partial

import vendors
from vendors.programs import Answer, Program, Scope, lines, number, unreadable

MIB_GB, GBIT_GB = (1 << 20) / 1e9, 1 / 8
UNITS: Mapping[str, float] = {"Gb/sec": GBIT_GB, "MB/sec": MIB_GB, "MiB/sec": MIB_GB, "usec": 1.0}
"""perftest's units in GB/s and us; what it calls MB are MiB (its manual on --report_gbits)."""


def perftest(text: str, column: str) -> Answer:
    """The figure of the last row in a column of perftest's table, in GB/s or us.

    Raises:
        UnreadableError: there is no such table, or no row in it.
    """
    place, factor, found = 0, 0.0, None
    for line in lines(text):
        words = line.split()
        if "#bytes" in line and (match := re.search(rf"{re.escape(column)}\s*\[([^\]]+)\]", line)):
            place, factor = 2 + line[: match.start()].count("["), UNITS.get(match[1], 0.0)
        elif factor and len(words) > place and words[0].isdecimal() and words[1].isdecimal():
            found = number(words[place])
    if found is None:
        raise unreadable(text)
    return Answer(figures={"": found * factor})


def _perftest(program: str, words: str, column: str, scope: Scope) -> Program:
    """A program of perftest (bandwidth or latency): a server, a client, a moment of traffic, equal in a ring."""
    is_rate, is_ring = column == "BW average", scope == "ring"
    return Program(
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

TOOLS: Mapping[str, Program] = {
    "ib_write_bw_loopback": _BANDWIDTH("loopback"),
    "ib_write_lat_loopback": _LATENCY("loopback"),
    "ib_write_bw": _BANDWIDTH("pairs"),
    "ib_write_bw_ring": _BANDWIDTH("ring"),
    "ib_write_lat": _LATENCY("pairs"),
    **{name: program for vendor in vendors.working() for name, program in vendor.programs.items()},
}
