"""Tells the kinds of hosts in a run by their devices: a figure is compared with those of the same kind alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from run_benchmarks.plan.plan import round_folder
from run_benchmarks.results.loading import LoadedRun
from run_benchmarks.results.monitor_readings import read_sys_info
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


def kinds_of(run: LoadedRun, case: str) -> dict[str, str]:
    """By host the names of its accelerators, each once, or else of its processor; empty if it tells neither."""
    return {node.host: _kind(info) for node, info in node_infos(run, case)}


def _kind(info: Mapping[str, Any]) -> str:
    found = _mapping(info.get("accelerator")).get("devices")
    told = [_mapping(each).get("name") for each in found] if isinstance(found, list) else []
    names = {name for name in told if isinstance(name, str)} or {_mapping(info.get("cpu")).get("model") or ""}
    return ", ".join(sorted(map(str, names)))[:MOST_CHARACTERS]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
