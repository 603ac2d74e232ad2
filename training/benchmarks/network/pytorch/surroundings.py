"""Gathers on rank 0 what surrounds the ranks: the tiers of the topology file, each rank's NIC and each host's kind."""

import os
from dataclasses import replace
from pathlib import Path

import torch.distributed as dist

from training.benchmarks.driver.workload.accelerator import accelerators, device_name, is_accelerator
from training.benchmarks.driver.workload.run_context import WorkloadContext
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.hosts.nics import nic_of
from training.benchmarks.network.patterns.topology import UNKNOWN, HostWidth, Topology, TopologyError, read_topology
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring.lineup import line_up


def surroundings(run: WorkloadContext[Config]) -> Topology:
    """The facts about the hosts, the same on every rank. All ranks call it.

    Raises:
        UnusableSettingsError: the topology file cannot be used; every rank raises it.
    """
    told = _topology(run) if run.config.topology is not None else UNKNOWN
    if run.config.pattern == "all":
        return told
    names = _devices(run) if run.config.pattern == "rail_pairs" else {}
    return replace(told, devices=names | dict(told.devices), kinds=_kinds(run) | dict(told.kinds))


def _kinds(run: WorkloadContext[Config]) -> dict[int, str]:
    """The devices of each host by node rank: what its accelerators are called, or without any its CPU."""
    device = run.group.device
    own = device_name(device)
    found: list[tuple[int, str]] = [(0, "")] * run.group.placement.world_size
    dist.all_gather_object(found, (int(os.environ["GROUP_RANK"]), own))
    return {node: name for node, name in found if name}


def _topology(run: WorkloadContext[Config]) -> Topology:
    hosts = [HostWidth(name=host.name, ranks=len(host.ranks)) for host in line_up(run.group)]
    found: list[Topology | str] = [""]
    if run.group.placement.rank == 0:
        try:
            found = [read_topology(Path(str(run.config.topology)), hosts)]
        except TopologyError as error:
            found = [str(error)]
    dist.broadcast_object_list(found, src=0)
    if isinstance(found[0], str):
        raise UnusableSettingsError(found[0])
    return found[0]


def _devices(run: WorkloadContext[Config]) -> dict[tuple[int, int], str]:
    """The NIC of each rank by node rank and local rank; ranks that know none are left out."""
    local = int(os.environ["LOCAL_RANK"])
    own = nic_of(local, _pci_addresses(run), os.environ)
    found: list[tuple[int, int, str]] = [(0, 0, "")] * run.group.placement.world_size
    dist.all_gather_object(found, (int(os.environ["GROUP_RANK"]), local, own))
    return {(node, rank): name for node, rank, name in found if name}


def _pci_addresses(run: WorkloadContext[Config]) -> list[str]:
    """Those of the host's accelerators by local rank; none on CPUs."""
    if not is_accelerator(run.group.device):
        return []
    devices = accelerators(run.group.device)
    return [f"{address}.0" for address in map(devices.pci_address, range(devices.count())) if address]
