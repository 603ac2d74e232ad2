"""Judges the state of NVIDIA's GPUs, as the kernel's log, the driver and nvidia-smi told the health script.

Source of the XIDs that programs cause: NVIDIA, "XID Errors" (docs.nvidia.com/deploy/xid-errors).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from vendors.health import DeviceLinks, Found, HealthCheck, HostHealth, Severity, is_below
from vendors.nvidia.health_script import SCRIPT
from vendors.nvidia.nvlink_fabric import not_joined, unlike_domains, untold_in

OF_PROGRAMS = frozenset({13, 31, 32, 43, 45, 68, 69, 109})
XID = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]{1,20})\): (\d{1,4})")
STATE = (
    "persistence mode", "power limit", "default power limit", "application clocks", "default application clocks",
    "hardware slowdown", "clocks held by a setting", "uncorrected ECC errors",
)  # fmt: skip
APPLICATION_CLOCKS = STATE[3]
ABSENT = ("[N/A]", "[Not Supported]", "[Requested functionality has been deprecated]")
"""The words for a value that a device or its driver does not have (application clocks go with drivers from 595 on);
another word in brackets is why it cannot be read.
"""
BOARD = "reset the host; check NVSwitches and the board"
RDMA_MEMORY = {
    "nvidia_peermem": ("nvidia_peermem, which is deprecated", "remove it: the driver and the kernel share by dma_buf"),
    "kernel": ("a kernel without dma_buf for RDMA", "install Linux 5.12 or newer with ib_umem_dmabuf"),
    "driver": ("a driver without dma_buf", "install the open kernel modules"),
}


def _judge(health: HostHealth) -> Iterator[Found]:
    """A field that is not available passes nothing, accuses nobody, and is told; no host is accepted where it cannot be
    read.
    """
    yield from _xids(health)
    yield from _state(health)
    for gpu, errors in health.of("nvlink_errors", 2):
        if errors.isdecimal() and int(errors):
            found = f"{errors} errors of its NVLinks since the driver was loaded"
            yield f"GPU {gpu}", found, "none", BOARD, "warning"
    for (state,) in health.of("fabric", 1):
        if state == "down":
            yield "fabric manager", "does not run", "running beside NVSwitches", "start nvidia-fabricmanager", "failure"
    for (way,) in health.of("rdma_memory", 1):
        if way in RDMA_MEMORY:
            found, action = RDMA_MEMORY[way]
            yield "RDMA to GPU memory", found, "dma_buf", action, "warning"


def _xids(health: HostHealth) -> Iterator[Found]:
    xids: Counter[tuple[str, int]] = Counter()
    for times, line in health.of("log_line", 2):
        if times.isdecimal() and (match := XID.search(line)):
            xids[match[1], int(match[2])] += int(times)
    for (device, code), total in xids.items():
        found = f"{code} of {device}, {total} times since the boot"
        if code in OF_PROGRAMS:
            yield "XID", found, "none", "look into the program's log", "warning"
        else:
            yield "XID", found, "none", "reset or test the device, then restart", "failure"


def _state(health: HostHealth) -> Iterator[Found]:
    told: list[tuple[str, str]] = []
    for (line,) in health.of("gpu", 1):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 9 and fields[0].isdecimal():
            yield from _of_gpu(f"GPU {fields[0]}", fields[1:])
            told += zip(STATE, fields[1:], strict=True)
    for (line,) in health.of("rows", 1):
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 3:
            yield from _of_rows(f"GPU {fields[0]}", *fields[1:])
            told += [("remapped rows", field) for field in fields[1:]]
    fabrics = [line for (line,) in health.of("nvlink_fabric", 1)]
    yield from not_joined(fabrics)
    yield from _untold(told, untold_in(fabrics))


def _untold(told: Sequence[tuple[str, str]], others: dict[str, None]) -> Iterator[Found]:
    """The fields that devices lack, or that cannot be read. told: by name; others: more that are not told."""
    unread = dict.fromkeys(name for name, field in told if field.startswith("[") and field not in ABSENT)
    lacking = dict.fromkeys(name for name, field in told if field in ABSENT) | others
    by_severity: dict[Severity, dict[str, None]] = {"blind": unread, "not seen": lacking}
    for severity, names in by_severity.items():
        if names:
            found = f"nvidia-smi does not tell: {', '.join(names)}"
            yield "state of the GPUs", found, "an answer", "look whether this GPU and driver have it", severity
    if APPLICATION_CLOCKS in lacking:  # and no driver tells of locked ones
        found = "whether a setting caps them does not show before the GPUs work"
        yield "clocks of the GPUs", found, "an answer", "see the warnings of a run on them", "not seen"


def _of_gpu(name: str, fields: list[str]) -> Iterator[Found]:
    persistence, limit, usual_limit, clock, usual_clock, slowdown, held, errors = fields
    if persistence == "Disabled":
        action = "start nvidia-persistenced: else the driver is loaded anew for each program"
        yield name, "persistence mode is off", "on", action, "warning"
    if is_below(limit, usual_limit):
        found, expected = f"its power is limited to {limit} W", f"{usual_limit} W, its default"
        yield name, found, expected, "nvidia-smi -pl, unless this is meant", "warning"
    if is_below(clock, usual_clock):
        found, expected = f"its clock is capped at {clock} MHz", f"{usual_clock} MHz, its default"
        yield name, found, expected, "nvidia-smi -rac and -rgc, unless this is meant", "warning"
    if slowdown == "Active":
        found = "the hardware holds its clocks down: heat, power brake or supply"
        yield name, found, "full clocks", "check fans, airflow, coolant and power cables", "failure"
    if held == "Active":
        found = "a setting holds its clocks"
        yield name, found, "full clocks", "nvidia-smi -rac and -rgc, unless this is meant", "warning"
    if errors.isdecimal() and int(errors):
        found = f"{errors} uncorrected ECC errors since the driver was loaded"
        yield name, found, "none", "reset the device; replace it if they come again", "warning"


def _of_rows(name: str, waiting: str, failed: str) -> Iterator[Found]:
    """Of the rows of a device's memory that are remapped."""
    if failed in ("Yes", "1"):
        yield name, "remapping of a row of its memory failed", "none", "replace the device", "failure"
    elif waiting in ("Yes", "1"):
        yield name, "a row of its memory waits to be remapped", "none", "reset the device", "warning"


def _beside(healths: Mapping[str, HostHealth], fewest: int) -> Iterator[tuple[str, Found]]:
    lines = {name: health.lines.get("nvlink_fabric", ()) for name, health in healths.items()}
    yield from unlike_domains(lines, fewest)


HEALTH = HealthCheck(
    script=SCRIPT,
    key="gpu",
    kind="GPUs",
    judge=_judge,
    beside=_beside,
    links=(DeviceLinks(key="nvlinks", kind="GPU", down="NVLinks are inactive", action=BOARD),),
    modules=("nvidia",),
    kernel_log=("NVRM: Xid [^,]*",),
    judged_log=XID,
    by_programs=frozenset(f"xid_{code}" for code in OF_PROGRAMS),
)
