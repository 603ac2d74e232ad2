"""Names the devices of a run's hosts: by kind, within which figures are compared, and by UUID or PCI address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from run_benchmarks.plan.plan import round_folder
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.monitor_readings import mapping, read_sys_info
from run_benchmarks.results.records import NodeRecord
from run_benchmarks.results.seal import node_folder

MOST_CHARACTERS = 120


def node_infos(run: LoadedRun, case: str) -> Iterator[tuple[NodeRecord, Mapping[str, Any]]]:
    """Each host's part of the rounds of a case, with what the host says of itself; empty where it says nothing."""
    folders = {each.name: run.folder / each.folder for each in run.record.cases}
    for record in run.rounds.get(case, []) if case in folders else []:
        folder = folders[case] / round_folder(record.round, record.attempt)
        for node in record.nodes:
            yield node, read_sys_info(folder / node_folder(node.host, node.node_rank))


@lru_cache(maxsize=4)  # the judgements of a stage ask one after the other: a file of each host is read for it
def kinds_of(run: LoadedRun, case: str) -> Mapping[str, str]:
    """By host the names of its accelerators, each once, and of its processor; empty if it tells none.

    Of what a host does not tell it counts as of the others' kind, if they are all of one.
    """
    infos = {node.host: info for node, info in node_infos(run, case)}
    devices = {host: _named(mapping(info.get("accelerator")).get("devices")) for host, info in infos.items()}
    processors = {host: str(mapping(info.get("cpu")).get("model") or "") for host, info in infos.items()}
    for found in (devices, processors):
        known = {kind for kind in found.values() if kind}
        if len(known) == 1:
            found |= dict.fromkeys(found, known.pop())
    return {host: ", ".join(filter(None, (devices[host], processors[host])))[:MOST_CHARACTERS] for host in infos}


@lru_cache(maxsize=2)
def identities_of(run: LoadedRun, case: str) -> Mapping[str, Mapping[str, str]]:
    """By host and name of a device what it keeps when devices are numbered anew, its UUID or PCI address. Names:
    "accelerator 3", as its driver numbers it; "device 3", as the ranks do, if they have all of the host's devices, each
    one. None of a host that numbers them otherwise in another round.
    """
    found: dict[str, dict[str, str]] = {}
    for node, info in node_infos(run, case):
        told = mapping(info.get("accelerator")).get("devices")
        devices = [mapping(each) for each in told] if isinstance(told, list) else []
        own = {
            number: str(name)[:MOST_CHARACTERS]
            for number, each in enumerate(devices)
            if (name := each.get("uuid") or each.get("pci_bus_id") or each.get("pci")) and each.get("index") == number
        }
        kinds = ("accelerator", "device") if len(devices) == len(node.ranks) else ("accelerator",)
        names = {f"{kind} {number}": name for kind in kinds for number, name in own.items()}
        found[node.host] = names if found.get(node.host, names) == names else {}
    return found


def alike_first(hosts: Iterable[str], suspects: Iterable[str], kinds: Mapping[str, str], each: int) -> list[str]:
    """Of hosts so many for `each` of the suspects, first those of the suspect's kind: only they show what it can do."""
    rest = list(hosts)
    asked = Counter(kinds.get(suspect, "") for suspect in suspects)
    own = [host for kind in asked for host in [h for h in rest if kinds.get(h, "") == kind][: each * asked[kind]]]
    chosen = {*own}
    return [*own, *(host for host in rest if host not in chosen)][: each * asked.total()]


def _named(devices: object) -> str:
    told = [mapping(each).get("name") for each in devices] if isinstance(devices, list) else []
    return ", ".join(sorted({name for name in told if isinstance(name, str)}))
