"""Judges the state of a host's accelerators, as the driver's own tool told the health script."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from run_benchmarks.inspection.findings import Found, Severity
from run_benchmarks.inspection.nvlink_fabric import not_joined, untold_in
from run_benchmarks.results.device_findings import are_links_lost

STATE = (
    "persistence mode", "power limit", "default power limit", "clocks", "default clocks", "hardware slowdown",
    "locked clocks", "uncorrected ECC errors",
)  # fmt: skip
MAX_CHARACTERS = 120
"""Of a name or a value: a host may send anything."""
LINKS = {
    "nvlinks": ("GPU", "NVLinks are inactive", "reset the host; check NVSwitches and the board"),
    "xgmi": ("accelerator", "XGMI links are down", "reset the host; check the board"),
}
"""By key of the lines: what the devices are called, what is wrong, and what to do."""
RDMA_MEMORY = {
    "nvidia_peermem": ("nvidia_peermem, which is deprecated", "remove it: the driver and the kernel share by dma_buf"),
    "kernel": ("a kernel without dma_buf for RDMA", "install Linux 5.12 or newer with ib_umem_dmabuf"),
    "driver": ("a driver without dma_buf", "install the open kernel modules"),
}


def device_state(of: Callable[[str, int], Iterator[list[str]]]) -> Iterator[Found]:
    """The findings of the lines of one host; `of`: the fields of each line of a key, as HostHealth.of. A field that is
    not available passes nothing, accuses nobody, and is told.
    """
    untold: dict[str, None] = {}
    for (line,) in of("gpu", 1):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 9 and fields[0].isdecimal():
            yield from _of_gpu(f"GPU {fields[0]}", fields[1:])
            untold |= {name: None for name, field in zip(STATE, fields[1:], strict=True) if field.startswith("[")}
    for (line,) in of("rows", 1):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3:
            yield from _of_rows(f"GPU {fields[0]}", *fields[1:])
            untold |= {"remapped rows": None} if fields[1].startswith("[") else {}
    fabrics = [line for (line,) in of("nvlink_fabric", 1)]
    yield from not_joined(fabrics)
    untold |= untold_in(fabrics)
    if untold:
        found = f"nvidia-smi does not tell: {', '.join(untold)}"
        yield "state of the GPUs", found, "an answer", "look whether this GPU and driver have it", "not seen"
    yield from _of_links(of)
    yield from _of_others(of)
    for (way,) in of("rdma_memory", 1):
        if way in RDMA_MEMORY:
            found, action = RDMA_MEMORY[way]
            yield "RDMA to GPU memory", found, "dma_buf", action, "warning"


def _of_links(of: Callable[[str, int], Iterator[list[str]]]) -> Iterator[Found]:
    """Links that are inactive on a host on which others are active, devices that show none there, and links that had to
    send again.
    """
    for key, (kind, what, action) in LINKS.items():
        links = [(name, int(up), int(down)) for name, up, down in of(key, 3) if up.isdecimal() and down.isdecimal()]
        active = [up for _, up, _ in links]
        for name, up, down in links:
            if not up + down and any(active):
                subject, expected = f"{kind} {name[:MAX_CHARACTERS]}", "links, as other devices of its host have"
                yield subject, "no link of it is shown", expected, action, "not seen"
            if are_links_lost(up, down, active):
                found, is_proven = f"{down} of {up + down} {what}", key == "nvlinks" or up < max(active)
                severity: Severity = "failure" if is_proven else "warning"  # a board may lack some XGMI links
                yield f"{kind} {name[:MAX_CHARACTERS]}", found, "all active", action, severity
    for gpu, errors in of("nvlink_errors", 2):
        if errors.isdecimal() and int(errors):
            found = f"{errors} replays and recoveries of its NVLinks since the driver was loaded"
            yield f"GPU {gpu}", found, "none", "reset the host; check NVSwitches and the board", "warning"


def _of_others(of: Callable[[str, int], Iterator[list[str]]]) -> Iterator[Found]:
    """Each thing that the tools and drivers of other devices tell has a line of its own."""
    lines = [*of("device", 3)]
    links = [value.split()[0] for _, what, value in lines if what == "link" and value.strip()]
    for name, what, value in lines:
        if (judge := _JUDGES.get(what)) is not None:
            for found, expected, action, severity in judge(value.strip()[:MAX_CHARACTERS], links):
                yield f"accelerator {name[:MAX_CHARACTERS]}", found, expected, action, severity


_Judged = Iterator[tuple[str, str, str, Severity]]


def _clocks(level: str, _: Sequence[str]) -> _Judged:
    if level != "auto":
        yield (
            f"its clocks are set to {level}",
            "auto",
            "set power_dpm_force_performance_level, unless this is meant",
            "warning",
        )


def _power(value: str, _: Sequence[str]) -> _Judged:
    now, _, usual = value.partition(" ")
    if is_below(now, usual):
        watts, most = (f"{float(each) / 1e6:g} W" for each in (now, usual))
        yield (
            f"its power is limited to {watts}",
            f"{most}, its default",
            "lift the limit, unless this is meant",
            "warning",
        )


def _count(said: str, action: str) -> Callable[[str, Sequence[str]], _Judged]:
    def judge(value: str, _: Sequence[str]) -> _Judged:
        if value.isdecimal() and int(value):
            yield said.format(value), "none", action, "warning"

    return judge


def _pages(value: str, _: Sequence[str]) -> _Judged:
    pending, _, failed = value.partition(" ")
    if failed.isdecimal() and int(failed):
        yield f"{failed} bad pages of its memory could not be retired", "none", "replace the device", "failure"
    elif pending.isdecimal() and int(pending):
        yield f"{pending} bad pages of its memory wait to be retired", "none", "reset the device", "warning"


def _throttled(why: str, _: Sequence[str]) -> _Judged:
    """By heat or the board while no test runs: a failure; by its own power, which load brings: a warning."""
    is_heat = why == "PROCHOT" or why.endswith("_THERMAL")
    action = "check fans, airflow, coolant and power cables"
    yield f"its clocks are held down: {why}", "full clocks", action, "failure" if is_heat else "warning"


def _alarm(said: str, _: Sequence[str]) -> _Judged:
    is_failure = not said.startswith(("Warning", "UNKNOWN"))
    action = "follow the vendor's list of error codes"
    yield f"its health is {said}", "OK", action, "failure" if is_failure else "warning"


def _link(state: str, of_host: Sequence[str]) -> _Judged:
    """Down beside others that are up it is broken; a host of which none is up may have no network there."""
    if state != "UP":
        are_up = 2 * sum(each == "UP" for each in of_host) > len(of_host)
        action = "check cable, optics and switch port"
        yield f"its link is {state}", "UP", action, "failure" if are_up else "warning"


_JUDGES: Mapping[str, Callable[[str, Sequence[str]], _Judged]] = {
    "clocks": _clocks,
    "power": _power,
    "memory_errors": _count(
        "{} uncorrected memory errors since the driver was loaded", "reset the device; replace it if they come again"
    ),
    "link_errors": _count(
        "{} uncorrected errors of its links since the driver was loaded", "reset the host; check the board"
    ),
    "isolated_pages": _count("{} isolated pages of its memory", "replace it if they become more"),
    "pages": _pages,
    "throttled": _throttled,
    "alarm": _alarm,
    "link": _link,
}


def _of_gpu(name: str, fields: list[str]) -> Iterator[Found]:
    persistence, limit, usual_limit, clock, usual_clock, slowdown, held, errors = fields
    if _is(persistence, "Disabled"):
        action = "start nvidia-persistenced: else the driver is loaded anew for each program"
        yield name, "persistence mode is off", "on", action, "warning"
    if is_below(limit, usual_limit):
        found, expected = f"its power is limited to {limit} W", f"{usual_limit} W, its default"
        yield name, found, expected, "nvidia-smi -pl, unless this is meant", "warning"
    if is_below(clock, usual_clock):
        found, expected = f"its clock is capped at {clock} MHz", f"{usual_clock} MHz, its default"
        yield name, found, expected, "nvidia-smi -rac and -rgc, unless this is meant", "warning"
    if _is(slowdown, "Active"):
        found = "the hardware holds its clocks down: heat, power brake or supply"
        yield name, found, "full clocks", "check fans, airflow, coolant and power cables", "failure"
    if _is(held, "Active"):
        found = "a setting holds its clocks"
        yield name, found, "full clocks", "nvidia-smi -rac and -rgc, unless this is meant", "warning"
    if errors.isdecimal() and int(errors):
        found = f"{errors} uncorrected ECC errors since the driver was loaded"
        yield name, found, "none", "reset the device; replace it if they come again", "warning"


def _of_rows(name: str, waiting: str, failed: str) -> Iterator[Found]:
    """Of the rows of a device's memory that are remapped."""
    if _is(failed, "Yes", "1"):
        yield name, "remapping of a row of its memory failed", "none", "replace the device", "failure"
    elif _is(waiting, "Yes", "1"):
        yield name, "a row of its memory waits to be remapped", "none", "reset the device", "warning"


def _is(field: str, *words: str) -> bool:
    return field in words


def is_below(value: str, usual: str) -> bool:
    """Whether both are finite, not negative, and the value is more than 1 % below the usual one."""
    try:
        return 0 <= float(value) < 0.99 * float(usual) < math.inf
    except ValueError:
        return False
