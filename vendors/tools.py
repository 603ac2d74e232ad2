"""Reads accelerators by the text that a vendor's own tool prints: one engine, to which each vendor gives a table.

A table has one pattern for each line that the tool prints of a device, written like the line itself: `{field:unit}` is
a number with its unit, `{field}` one without, `{}` any word, `{...}` any text of a cell; a blank is any blanks. A unit
that the tool prints otherwise does not match, so that no number is read in a wrong one.
"""

import contextlib
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vendors.base import AcceleratorHealth, AcceleratorSample, ProbeUnavailable

EVERY_S = 5.0
"""Seconds between two calls of the tool, FlagPerf's."""
DEADLINE_S = 8.0
"""Seconds after which a call is ended."""
STALE_S = 3 * EVERY_S + DEADLINE_S
_MIB = 1 << 20
_MOST_TEXT = 4000
_NUMBER = r"[-+]?\d+(?:\.\d+)?"
_NONE = r"N/?A|n/a|-+"
_TEXTS = {"index": r"\d+", "name": r"[^\s|][^|]*?", "pci": rf"[0-9a-fA-F]+:[0-9a-fA-F:.]+|{_NONE}", "health": r"\S+"}
# Fields of a table and the values that a sound device may have: a tool that prints others prints nonsense.
RANGES: Mapping[str, tuple[float, float]] = {
    "temperature_c": (-40, 150),
    "power_w": (0, 5000),
    "power_limit_w": (0, 5000),
    "utilization_percent": (0, 100),
    "memory_used_mib": (0, 1 << 24),
    "memory_total_mib": (1, 1 << 24),
    "sm_clock_mhz": (0, 10000),
    "memory_clock_mhz": (0, 10000),
    "ecc_uncorrected": (0, 1 << 62),
}
_PLACE = re.compile(r"\{(?P<field>\w*|\.\.\.)(?::(?P<unit>[^}]+))?\}|(?P<blank>\s+)|(?P<text>.)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A vendor's table.

    command: prints all devices once and ends. lines: the patterns of a device in the order of its lines, each a pattern
    or those of several versions of the tool; none for a tool of which only the text is kept. headings: what the output
    has to have, where units stand there. driver: a pattern around the driver's version. older: the table of
    the tool that older drivers have instead.
    """

    command: tuple[str, ...]
    lines: tuple[str | tuple[str, ...], ...] = ()
    headings: tuple[str, ...] = ()
    driver: str = r"Driver Version\s*:\s*(\S+)"
    older: "Tool | None" = None

    def open_probe(self) -> "ToolProbe":
        """A probe that calls the tool and reads what it prints."""
        known = (self,) if self.older is None else (self, self.older)
        there = (tool for tool in known if shutil.which(tool.command[0]))
        return ToolProbe(next(there, self))


Device = dict[str, str]


def pattern_of(line: str) -> re.Pattern[str]:
    """The regular expression of a line of a table."""
    places = list(_PLACE.finditer(line))
    parts = []
    for number, place in enumerate(places):
        if place["blank"]:
            beside = places[max(number - 1, 0)], places[min(number + 1, len(places) - 1)]
            is_loose = any(each["text"] and not each["text"].isalnum() for each in beside)
            parts.append(r"\s*" if is_loose else r"\s+")
        elif place["text"]:
            parts.append(re.escape(place["text"]))
        elif place["field"] == "...":
            parts.append(r"[^|]*")
        else:
            parts.append(_value(place["field"], place["unit"]))
    return re.compile(r"\s*" + "".join(parts) + r"\s*")


def _value(name: str, unit: str | None) -> str:
    if not name:
        return r"\S+"
    if name in _TEXTS:
        return f"(?P<{name}>{_TEXTS[name]})"
    if name not in RANGES:
        raise ValueError(f"{name!r} is no field of a table; allowed: {', '.join((*_TEXTS, *RANGES))}")
    of_unit = "" if unit is None else rf"\s*{'°?' if unit == 'C' else ''}{re.escape(unit)}"
    return f"(?P<{name}>{_NUMBER}{of_unit}|{_NONE})"


def devices_in(tool: Tool, text: str) -> list[Device]:
    """The fields of each device whose lines are all there, in the tool's order; those of another form are left out.

    Raises:
        ValueError: a heading is missing.
    """
    missing = [heading for heading in tool.headings if heading not in text]
    if missing:
        raise ValueError(f"no heading {', '.join(map(repr, missing))}")
    patterns = [[pattern_of(each) for each in ((line,) if isinstance(line, str) else line)] for line in tool.lines]
    found: list[Device] = []
    open_device: Device = {}
    step = 0
    for line in text.splitlines() if patterns else ():
        for at in (step, 0) if step else (0,):
            match = next(filter(None, (each.fullmatch(line) for each in patterns[at])), None)
            if match is not None:
                open_device = {**(open_device if at else {}), **match.groupdict()}
                step = at + 1
                break
        if step == len(patterns):
            found.append(open_device)
            open_device, step = {}, 0
    return found


def number_of(device: Device, name: str) -> float | None:
    """A field's number; None where the tool has none, or one that no sound device has."""
    match = re.match(_NUMBER, device.get(name, ""))
    if match is None:
        return None
    least, most = RANGES[name]
    value = float(match[0])
    return value if least <= value <= most else None


class ToolProbe:
    """Reads accelerators by their vendor's tool, which a thread calls every `every_s`; nothing else waits for it.

    Raises:
        ProbeUnavailable: the tool is missing or fails, or prints no device.
    """

    def __init__(self, tool: Tool, every_s: float = EVERY_S) -> None:
        self._tool = tool
        self._every_s = every_s
        self._process: subprocess.Popen[str] | None = None
        self._ended = threading.Event()
        try:
            self._text = self._called()
            first = devices_in(tool, self._text)
        except (OSError, ValueError) as error:
            raise ProbeUnavailable(f"{self._name}: {error}") from error
        if tool.lines and not first:
            raise ProbeUnavailable(f"{self._name} prints no device in the form that is known: {self._text[:200]!r}")
        self._known = {_identity(device, order): order for order, device in enumerate(first)}
        self._latest: tuple[float, dict[int, Device], str] = (time.monotonic(), dict(enumerate(first)), "")
        threading.Thread(target=self._watch, name=self._name, daemon=True).start()

    @property
    def _name(self) -> str:
        return " ".join(self._tool.command)

    def describe(self) -> dict[str, Any]:
        """The driver's version and the devices; "text" is what the tool printed, for a person."""
        driver = re.search(self._tool.driver, self._text)
        devices = [
            {
                "index": index,
                "name": device.get("name", ""),
                "pci": device.get("pci", ""),
                "memory_bytes": _bytes(number_of(device, "memory_total_mib")),
                "power_limit_w": number_of(device, "power_limit_w"),
            }
            for index, device in self._latest[1].items()
        ]
        return {"driver": driver[1] if driver else "", "devices": devices, "text": self._text[:_MOST_TEXT]}

    def sample(self) -> list[AcceleratorSample]:
        """One sample per device, of what the tool printed last."""
        return [
            AcceleratorSample(index=index, error=found) if isinstance(found, str) else _sample(index, found)
            for index, found in self._present()
        ]

    def health(self) -> list[AcceleratorHealth]:
        """Uncorrected errors of each device, and `alarm` (1: the tool calls the device's health other than OK)."""
        return [
            AcceleratorHealth(index=index, error=found) if isinstance(found, str) else _health(index, found)
            for index, found in self._present()
        ]

    def energy_joules(self) -> None:
        """None: the tools print no counter."""

    def close(self) -> None:
        """End the thread, and the tool that it waits for."""
        self._ended.set()
        process = self._process
        if process is not None:
            with contextlib.suppress(OSError):
                process.kill()

    def _present(self) -> list[tuple[int, Device | str]]:
        """Of each known device the last fields, or why there are none."""
        at, devices, problem = self._latest
        age = time.monotonic() - at
        if not problem and age > max(STALE_S, 3 * self._every_s):
            problem = f"{self._name} has not answered for {age:.0f} s"
        lost = f"{self._name} no longer lists it"
        return [(index, problem or devices.get(index, lost)) for index in self._known.values()]

    def _watch(self) -> None:
        while not self._ended.wait(self._every_s):
            try:
                found = devices_in(self._tool, self._called())
            except (OSError, ValueError) as error:
                self._latest = (time.monotonic(), {}, f"{self._name}: {error}")
                continue
            known = {self._known.get(_identity(device, order)): device for order, device in enumerate(found)}
            self._latest = (time.monotonic(), {at: each for at, each in known.items() if at is not None}, "")

    def _called(self) -> str:
        """The text that the tool prints."""
        pipe = subprocess.PIPE
        with subprocess.Popen(
            self._tool.command, stdout=pipe, stderr=pipe, stdin=subprocess.DEVNULL, text=True, errors="replace"
        ) as process:
            self._process = process
            try:
                out, err = process.communicate(timeout=DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise ValueError(f"did not end in {DEADLINE_S:g} s") from None
            finally:
                self._process = None
        if process.returncode:
            raise ValueError(f"ended with {process.returncode}: {(err or out).strip()[-200:]}")
        return out


def _identity(device: Device, order: int) -> str:
    """The mark that tells a device from the others: its PCI address, else its number, else its place."""
    pci = device.get("pci", "")
    return pci if ":" in pci else device.get("index", str(order))


def _sample(index: int, device: Device) -> AcceleratorSample:
    used, total = number_of(device, "memory_used_mib"), number_of(device, "memory_total_mib")
    clocks = number_of(device, "sm_clock_mhz"), number_of(device, "memory_clock_mhz")
    return AcceleratorSample(
        index=index,
        utilization_percent=number_of(device, "utilization_percent"),
        memory_used_bytes=None if used is None or total is None or used > total else _bytes(used),
        memory_total_bytes=_bytes(total),
        temperature_c=number_of(device, "temperature_c"),
        power_w=number_of(device, "power_w"),
        sm_clock_mhz=_whole(clocks[0]),
        memory_clock_mhz=_whole(clocks[1]),
        ecc_uncorrected=_whole(number_of(device, "ecc_uncorrected")),
    )


def _health(index: int, device: Device) -> AcceleratorHealth:
    errors = _whole(number_of(device, "ecc_uncorrected"))
    return AcceleratorHealth(
        index=index,
        counts={} if errors is None else {"ecc_uncorrected": errors},
        states={"alarm": int(device["health"].upper() != "OK")} if "health" in device else {},
    )


def _bytes(mib: float | None) -> int | None:
    return None if mib is None else int(mib * _MIB)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)
