"""Defines the interface of a vendor: names, options, image parameters, and a probe that reads its accelerators."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vendors.datasheet import Datasheet
from vendors.health import HealthCheck
from vendors.programs import Program

WORKS_PERCENT = 50.0
"""Utilization from which on a device has its PCIe link at full speed."""


class PcieGenerations:
    """The highest generation of each device's PCIe link while it worked: an idle device lowers it."""

    def __init__(self) -> None:
        self._used_percent: dict[int, float] = {}
        self._highest: dict[int, int] = {}

    def note_use(self, index: int, percent: float | None) -> None:
        """The utilization of a device, of which the link's generation is asked next."""
        self._used_percent[index] = percent or 0.0

    def highest(self, index: int, ask: Callable[[], int | None]) -> int | None:
        """The generation; `ask` tells that of now, if the device works. None if it has not yet."""
        if self._used_percent.get(index, 0.0) >= WORKS_PERCENT and (now := ask()) is not None:
            self._highest[index] = max(now, self._highest.get(index, 0))
        return self._highest.get(index)


class ProbeUnavailable(Exception):  # noqa: N818 - a state of the host, not a mistake of the program
    """The host has no such accelerator, driver or library; `reason` says which, for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceleratorSample:
    """One device at one moment. A field is None if the device or its driver does not offer it.

    Units are in the names; percentages run from 0 to 100, power is in watts, clocks are in MHz. `throttle_reasons`
    names why the clocks are lowered (empty: they are not). `ecc_corrected` and `ecc_uncorrected` count errors since the
    driver was loaded. `error` is set if the device itself failed to answer: the others on the host are still sampled.
    """

    index: int
    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    throttle_reasons: Sequence[str] | None = None
    ecc_corrected: int | None = None
    ecc_uncorrected: int | None = None
    error: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceleratorProcess:
    """A process that computes on a device; `pid` is the driver's, which may differ inside a container."""

    device: int
    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class AcceleratorHealth:
    """The counters and state of one device, as far as it tells. `error` is set if it did not answer.

    counts: errors, each ever rising: `ecc_uncorrected`, `nvlink_errors`, `pcie_replays`, and `xid_<code>` for each
    code of the driver's error events since the probe was opened. states: `rows_pending` and `rows_failed` (1: a memory
    row waits for its remapping, or it failed), `nvlinks_up` and `nvlinks_down`, the same of `xgmi_links`; of the fabric
    of its NVLinks `fabric_waits` (1: it has not joined it), `fabric_failed` (not 0: the driver's error) and
    `fabric_misconfigured` (not 0: its code), `fabric_unhealthy`, `fabric_degraded`, `fabric_recovering`; `pcie_width`
    and `pcie_width_max` in lanes, `pcie_generation` (while it worked) and `pcie_generation_max`, `mig` (1: it is
    divided), `slowdown_c` (degrees Celsius from which its clocks are lowered), `alarm` (1: the vendor's tool calls the
    device's health other than OK).
    """

    index: int
    counts: Mapping[str, int] | None = None
    states: Mapping[str, int] | None = None
    error: str | None = None


@runtime_checkable
class HealthReader(Protocol):
    """A probe that can tell what its devices counted."""

    def health(self) -> list[AcceleratorHealth]:
        """One entry per device, in index order."""
        ...


@runtime_checkable
class ProcessLister(Protocol):
    """A probe that can list the processes on its devices."""

    def processes(self) -> list[AcceleratorProcess] | None:
        """All processes, including other users'; None if the driver does not tell."""
        ...


class AcceleratorProbe(Protocol):
    """Reads all accelerators of one host through one handle. No call may wait for a process."""

    def describe(self) -> dict[str, Any]:
        """{"driver": str, "devices": [{"index", "name", "uuid", "memory_bytes", ...}]}, and what else there is."""
        ...

    def sample(self) -> list[AcceleratorSample]:
        """One sample per device, in index order."""
        ...

    def energy_joules(self) -> Mapping[int, float] | None:
        """Energy counter by device index, in joules since an arbitrary start; None if the devices have no counter."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageParameters:
    """Parameters of the image of one framework.

    template: file name of the Dockerfile template, searched in vendors/<vendor>/.
    base_image: the base unless the user names another. python: interpreter inside the finished image that has the
    framework and our packages. options: further values for the template alone; the caller of image_spec may override
    them by name. unpacked_bytes: approximate size of the finished image on a host. requirements: file of requirements/
    with what the workloads of the framework need.
    """

    template: str
    base_image: str
    python: str = "/opt/clusterdyno/bin/python"
    options: Mapping[str, str] = field(default_factory=dict)
    unpacked_bytes: int = 4 << 30
    requirements: str = "workload.txt"


@dataclass(frozen=True, kw_only=True, slots=True)
class Vendor:
    """One kind of host.

    visible_devices_env: variable that limits a process to some devices ("" if there is none).
    backend: torch.distributed backend, e.g. "nccl" or "gloo".
    container_options: what a container needs to reach the devices, in `docker run` syntax; the controller parses it. A
        glob of device_files, as in `--device /dev/abacus[0-9]*`, stands for those that a host has.
    apptainer_options: the same for `apptainer exec`, word by word.
    environment: defaults for every task; a case's own variables win.
    images: image parameters by framework name, e.g. "pytorch".
    device_type: what torch calls the devices; "cpu": there are none. Else vendors/<name>/device.py, which needs torch,
        has `open_devices`, a function that returns a vendors.device.Accelerators.
    socket_variables: name the network interface to the communication library.
    pci_devices: the devices' UUIDs ("" unknown) by PCI address in the order of the ranks, from the tree at a root.
    open_probe: opens the accelerators of this host, or fails with ProbeUnavailable; called on the hosts only.
    device_files: globs of device nodes that prove a device on a host without any tool (() if there are none); one for
        each rank, but for those of gloo, which compute on the CPU.
    monitor_name: the accelerators' text log is `<monitor_name>_monitor.log` ("" for a vendor without accelerators).
    device_memory: a command of the driver's own tool (blank-separated words) that prints "index, total MiB, used MiB"
        for each device; device_processes: one that prints a line for each process on a device. "" for none.
    link_devices: device nodes of the links between hosts, besides /dev/infiniband: in a case of several hosts a
        container gets those that its host has.
    packages, image_variables: distributions, and variables of base images, whose versions sys_info.json shows.
    health: what the health check of hosts asks of the devices before a run, and how it judges the answers.
    programs: the vendor's own tests of its devices, by the names that cases call them.
    seen: the device and the month of the last run on one ("": none has been seen).
    """

    name: str
    visible_devices_env: str
    backend: str
    container_options: str
    open_probe: Callable[[], AcceleratorProbe]
    environment: Mapping[str, str] = field(default_factory=dict)
    images: Mapping[str, ImageParameters] = field(default_factory=dict)
    apptainer_options: tuple[str, ...] = ()
    device_type: str = "cpu"
    socket_variables: tuple[str, ...] = ()
    pci_devices: Callable[[Path], Mapping[str, str]] | None = None
    datasheets: tuple[Datasheet, ...] = ()
    device_files: tuple[str, ...] = ()
    monitor_name: str = ""
    device_memory: str = ""
    device_processes: str = ""
    link_devices: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    image_variables: tuple[str, ...] = ()
    health: HealthCheck | None = None
    programs: Mapping[str, Program] = field(default_factory=dict)
    seen: str = ""
