"""Reads the facts of a host in one round trip, for the check and for the launch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from run_benchmarks.errors import HostError
from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.facts_script import SCRIPT

SECONDS = 20.0
CLOCK_TOLERANCE = 0.05  # seconds by which a clock that NTP slews may run ahead meanwhile
MAX_PROCESSORS = 1 << 16
INFINIBAND = "/dev/infiniband"
NO_MAC = "00:00:00:00:00:00"  # of the loopback interface


@dataclass(frozen=True, kw_only=True)
class MachineIdentity:
    """Values that distinguish machines; "" if the host does not report one.

    `boot_id` is of the running kernel, `netns` of the network namespace in it, `machine_id` of the installation (clones
    share it), `host_key` sshd's public key in base64, `macs` the hardware addresses of its interfaces.
    """

    boot_id: str = ""
    netns: str = ""
    machine_id: str = ""
    host_key: str = ""
    macs: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """Facts of a host from the script. Sizes in bytes; `clock_offset` (host - head node) and its error in s.

    `code` is the digest of the code folder's content, None without a folder; `code_listing` is the beginning of its
    content if it differs from the folder's name. `power_groups`: the numbers of the login's groups that own a meter of
    the machine's power: one of `ipmi_devices`, or RAPL's counters. `checked_s`: the head node's epoch seconds; `load`:
    runnable tasks, the mean of the last minute; `mounts`: by folder of `free`; `device_free`: bytes of each
    accelerator; `accelerator_processes`: one line each; `device_trouble`: exit code of the driver's tool, if it failed,
    and the first line of what it says.
    """

    kernel: str
    hostname: str
    user: str
    uid: int
    gid: int
    clock_offset: float
    clock_error: float
    writable: frozenset[str]
    unwritable: dict[str, str]
    free: dict[str, int]
    code: str | None
    code_listing: tuple[str, ...]
    has_docker_client: bool
    python: str | None
    missing_packages: tuple[str, ...]
    no_python: str | None
    networks: frozenset[str]
    link_devices: tuple[str, ...]
    has_powercap: bool
    resolves: frozenset[str]
    interface: str | None
    devices: tuple[str, ...]
    data: frozenset[str]
    listening: frozenset[int]
    identity: MachineIdentity = MachineIdentity()
    checked_s: float = 0.0
    load: float | None = None
    cores: int = 1
    mounts: dict[str, str] = field(default_factory=dict)
    memory_available: int | None = None
    device_free: tuple[int, ...] = ()
    accelerator_processes: tuple[str, ...] = ()
    device_trouble: str = ""
    ipmi_devices: tuple[str, ...] = ()
    power_groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Questions:
    """The questions for every host. The name of `code_dir` is the code's digest."""

    deploy: str
    log_root: str
    code_dir: str
    python: str | None
    packages: Sequence[str]
    master: str | None
    names: Sequence[str]
    device_globs: Sequence[str]
    data: Sequence[str]
    device_memory: str = ""
    device_processes: str = ""
    link_devices: Sequence[str] = ()

    def argv(self) -> list[str]:
        """The command that reads the facts."""
        return [
            *("sh", "-c", SCRIPT, "sh"),
            *(self.deploy, self.log_root, self.code_dir, self.python or "", self.master or ""),
            *(" ".join(self.packages), self.device_memory, self.device_processes),
            " ".join((INFINIBAND, *self.link_devices)),
            *("--", *self.names, "--", *self.device_globs, "--", *self.data),
        ]


def gather(host: Host, questions: Questions) -> HostFacts:
    """Ask one host.

    Raises:
        HostError: the script itself fails.
    """
    asked = time.time()
    completed = host.run(questions.argv(), deadline=SECONDS)
    answered = time.time()
    try:
        return _parse(completed.stdout, asked, answered)
    except (KeyError, ValueError, IndexError, OverflowError) as error:
        raise HostError(
            host.name, f"unreadable answer to the fact script ({error}): {completed.stdout[:500]!r}"
        ) from error


class _Answer:
    """The script's lines, each a key and a value; a key may have several lines, of which `one` holds the last."""

    def __init__(self, text: str) -> None:
        self._pairs = [line.split("\t", 1) for line in text.splitlines() if "\t" in line]
        self.one = dict(self._pairs)

    def many(self, key: str) -> list[str]:
        """The values of all lines of a key."""
        return [value for found, value in self._pairs if found == key]

    def table(self, key: str) -> dict[str, str]:
        """The values of all lines of a key, of which each is itself a key and a value."""
        return {value.split("\t", 1)[0]: value.split("\t", 1)[1] for value in self.many(key)}

    def spaces(self) -> dict[str, tuple[int, str]]:
        """Free bytes and mount point by folder."""
        # df prints no folder names: its lines after the header are in the order of the folders.
        folders, lines = self.many("writable"), self.many("space")[1:]
        told = zip(folders, lines, strict=True) if len(folders) == len(lines) else ()
        return {folder: space for folder, line in told if (space := _space(line)) is not None}

    def listening(self) -> frozenset[int]:
        """The TCP ports on which the host listens, from /proc/net/tcp or from ss."""
        listed = [int(port, 16) for port in self.many("listening")]
        return frozenset(listed + [int(line.split()[3].rpartition(":")[2]) for line in self.many("listener") if line])

    def identity(self) -> MachineIdentity:
        """The properties that distinguish the machine from others."""
        return MachineIdentity(
            boot_id=self.one.get("boot_id", ""),
            netns=self.one.get("netns", ""),
            machine_id=self.one.get("machine-id", ""),
            host_key=self.one.get("host_key", ""),
            macs=frozenset(mac for mac in self.many("mac") if mac and mac != NO_MAC),
        )


def _parse(text: str, asked: float, answered: float) -> HostFacts:
    answer = _Answer(text)
    one, many = answer.one, answer.many
    spaces = answer.spaces()
    python, *missing_packages = one.get("python", "").split(" ")
    offset, error = _clock(many("clock_ns"), asked, answered)
    devices = [(line, _device_free(line)) for line in many("device_memory")]
    return HostFacts(
        kernel=one["kernel"],
        hostname=one["hostname"],
        user=one["user"],
        uid=int(one["uid"]),
        gid=int(one["gid"]),
        clock_offset=offset,
        clock_error=error,
        writable=frozenset(many("writable")),
        unwritable=answer.table("unwritable"),
        free={folder: size for folder, (size, _) in spaces.items()},
        mounts={folder: mount for folder, (_, mount) in spaces.items()},
        memory_available=int(one["memory_available"]) if "memory_available" in one else None,
        device_free=tuple(free for _, free in devices if free is not None),
        accelerator_processes=tuple(many("device_process")),
        device_trouble=_trouble(one.get("device_trouble"), [line for line, free in devices if free is None]),
        code=one.get("code"),
        code_listing=tuple(many("code_file")),
        has_docker_client="docker_client" in one,
        python=python or None,
        missing_packages=tuple(missing_packages),
        no_python=one.get("no_python"),
        networks=frozenset(many("network")),
        link_devices=tuple(many("link_device")),
        has_powercap="powercap" in one,
        resolves=frozenset(many("resolves")),
        interface=_interface(one.get("own"), one.get("route")),
        devices=tuple(many("device")),
        data=frozenset(many("data")),
        listening=answer.listening(),
        checked_s=answered,
        load=_load(one["load"]) if "load" in one else None,
        cores=processors(one.get("online", "")),
        ipmi_devices=tuple(many("ipmi")),
        power_groups=tuple(sorted(set(many("power_group")) - {one["gid"]})),
        identity=answer.identity(),
    )


def _clock(readings: Sequence[str], asked: float, answered: float) -> tuple[float, float]:
    """NTP's offset and half its delay from four time stamps (RFC 5905, section 8), in seconds."""
    first, last = (int(reading) / 1e9 for reading in readings)
    away, there = answered - asked, last - first
    if not 0 <= there <= away + CLOCK_TOLERANCE:
        raise ValueError(f"its clock moved by {there:.3f} s in a round trip of {away:.3f} s")
    return ((first - asked) + (last - answered)) / 2, max(0.0, away - there) / 2


def _load(text: str) -> float:
    load = float(text)
    if not (math.isfinite(load) and load >= 0):
        raise ValueError(f"load {text[:40]}")
    return load


def read_space(text: str) -> tuple[int, str] | None:
    """Free bytes and mount point from the output of `df -Pk` for one path; None if it is malformed."""
    lines = text.splitlines()
    return _space(lines[1]) if len(lines) > 1 else None


def _space(line: str) -> tuple[int, str] | None:
    words = line.split(maxsplit=5)
    return (int(words[3]) * 1024, words[5]) if len(words) == 6 and words[3].isdecimal() else None


def processors(ranges: str) -> int:
    """Number of processors in a list of the kernel such as `0-3,8`, at least 1."""
    pairs = (word.split("-") for word in ranges.strip().split(",") if word)
    count = max(1, sum(int(pair[-1]) - int(pair[0]) + 1 for pair in pairs))
    if count > MAX_PROCESSORS:
        raise ValueError(f"{count} processors")
    return count


def _device_free(line: str) -> int | None:
    """Free bytes of a device; one that does not report them counts as unlimited. None of a line about anything else."""
    words = [word.strip() for word in line.split(",")]
    if len(words) != 3 or not words[0].isdecimal():
        return None
    _, total, used = words
    return (int(total) - int(used)) << 20 if total.isdecimal() and used.isdecimal() else 1 << 62


def _trouble(code: str | None, said: Sequence[str]) -> str:
    return "" if code is None else f"{code} {next(iter(said), '')}"


def _interface(own: str | None, route: str | None) -> str | None:
    """The interface that holds the master's address (on the master itself), or the one of the route to it."""
    if own:
        return own
    words = (route or "").split()
    return words[words.index("dev") + 1] if "dev" in words[:-1] else None
