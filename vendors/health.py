"""Defines what a vendor adds to the health check of hosts: what is asked of its devices, and how answers are judged."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["failure", "warning", "in part", "not seen", "blind"]
"""in part: looked at, and not to the end; blind: not seen, and without it no host is accepted."""
Found = tuple[str, str, str, str, Severity]
"""Subject, found, expected, action, severity."""
MAX_CHARACTERS = 120
"""Of a name or a value: a host may send anything."""


@dataclass(frozen=True, kw_only=True)
class HostHealth:
    """The health of one host, as the script printed it; `is_whole`: up to its end."""

    lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_whole: bool = False

    def of(self, key: str, fields: int) -> Iterator[list[str]]:
        """The fields of each line of a key that has so many; a host may send anything."""
        for line in self.lines.get(key, ()):
            words = line.split("\t")
            if len(words) == fields:
                yield words


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceLinks:
    """Links between the devices of a host, of which the script prints `<key><TAB><device><TAB><up><TAB><down>`.

    kind: what a device is called. down: what is wrong with links that are down. action: what to do then. may_lack: a
    board may lack some, so that those of a device prove a fault only beside one that has more.
    """

    key: str
    kind: str
    down: str
    action: str
    may_lack: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class HealthCheck:
    """How a vendor's devices are checked on a host before a run, and how the answers are judged.

    script: POSIX shell that prints `key<TAB>value` lines, and nothing where the vendor has no device. It is part of
        run_benchmarks/inspection/health_script.py, whose functions `say`, `asks` and `value` it calls, and runs on each
        host. A line of `version`, `setting` or `firmware` is compared with that of other hosts; one of `cannot` says
        what could not be looked at, one of `blind` that no host is accepted without it.
    key, kind: of the script's lines of single devices, and what its `cannot` lines call all devices of a host.
    judge: the findings of a host by its own lines.
    beside: the findings of hosts beside one another, each with its host; the number: the fewest hosts that are a rule.
    links: links between devices, which the check judges.
    modules: the driver's modules of the kernel, whose versions are compared.
    kernel_log: extended regular expressions of lines of the kernel's log that tell of a broken device. Lines where one
        matches the same text are told once, with their number.
    judged_log: those of these lines that `judge` explains.
    by_programs: counts of vendors.base.AcceleratorHealth that a program causes, and no broken device.
    """

    script: str
    key: str
    kind: str
    judge: Callable[[HostHealth], Iterator[Found]]
    beside: Callable[[Mapping[str, HostHealth], int], Iterator[tuple[str, Found]]] | None = None
    links: tuple[DeviceLinks, ...] = ()
    modules: tuple[str, ...] = ()
    kernel_log: tuple[str, ...] = ()
    judged_log: re.Pattern[str] | None = None
    by_programs: frozenset[str] = frozenset()


Judged = Iterator[tuple[str, str, str, Severity]]
"""Found, expected, action, severity."""
Judge = Callable[[str, Sequence[str]], Judged]
"""Of the value of one device, and the values of all devices of its host."""


def judged_devices(health: HostHealth, key: str, judges: Mapping[str, Judge]) -> Iterator[Found]:
    """The findings of lines `<key><TAB><device><TAB><what><TAB><value>`, each by the judge of its `what`."""
    lines = [(name, what, value.strip()[:MAX_CHARACTERS]) for name, what, value in health.of(key, 3)]
    of_host: dict[str, list[str]] = defaultdict(list)
    for _, what, value in lines:
        of_host[what].append(value)
    for name, what, value in lines:
        if (judge := judges.get(what)) is not None:
            for found, expected, action, severity in judge(value, of_host[what]):
                yield f"accelerator {name[:MAX_CHARACTERS]}", found, expected, action, severity


def count(said: str, action: str) -> Judge:
    """A judge who warns of each number above 0; said: the sentence, with {} for the number."""

    def judge(value: str, _: Sequence[str]) -> Judged:
        if value.isdecimal() and int(value):
            yield said.format(value), "none", action, "warning"

    return judge


MEMORY_ERRORS = count(
    "{} uncorrected memory errors since the driver was loaded", "reset the device; replace it if they come again"
)


def is_below(value: str, usual: str) -> bool:
    """Whether both are finite, not negative, and the value is more than 1 % below the usual one."""
    try:
        return 0 <= float(value) < 0.99 * float(usual) < math.inf
    except ValueError:
        return False
