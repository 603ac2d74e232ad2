"""Finds the tools of others that an acceptance runs: those of the vendor's configs that the hosts have."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import vendors
from protocol.case_config import load_case_config
from protocol.config_file import config_file
from run_benchmarks.acceptance.rungs import Others
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.table import TOOLS

SECONDS = 30.0
MOST_MEETINGS = 3
"""Rounds in which every host of a ring has met both its neighbours."""
QUICK_SHARE = 0.1
"""Of the budget that a diagnosis may take in the rung of health."""
# Arguments: folders to look into beside PATH, joined by colons; programs. Prints those that are there.
SCRIPT = 'PATH=$PATH:$1; shift; for name; do if command -v "$name" >/dev/null 2>&1; then echo "$name"; fi; done'


def tools_of(vendor: str, config: str) -> Config | None:
    """A vendor's config of the tools, or that of all vendors; None: there is none."""
    path = config_file(vendors.case_dir(vendor, "tools", "pytorch") / "config", config)
    return load_case_config(Config, path, {}) if path.is_file() else None


def command_of(config: Config, name: str) -> str:
    """How a config calls a tool."""
    return " ".join([TOOLS[name].command[0], *config.words_of(name)])


def too_long(config: Config, nproc: int, budget_s: float) -> dict[str, str]:
    """By command the diagnoses of health that take more than their share of the budget, and what is said of each."""
    found = {}
    for name in config.tools:
        if (taken := _seconds(config, name, nproc)) > QUICK_SHARE * budget_s:
            said = f"{TOOLS[name].command[0]} takes {taken:g} s, more than {QUICK_SHARE:.0%} of the budget"
            found[command_of(config, name)] = said
    return found


def others_of(
    config: Config,
    nproc: int,
    there: Container[str] | None = None,
    elsewhere: Mapping[str, str] = MappingProxyType({}),
) -> Others:
    """The tools of a config whose programs are `there` (None: all), and sentences on those that are not. elsewhere: by
    command that only another rung has a sentence on it, or "".

    What the config says of the others alone is taken back: a case that names it for no tool is refused. The time is of
    one call after the other, perftest's for each RDMA device: as many as ranks, unless they are named.
    """
    present = [name for name in config.tools if there is None or TOOLS[name].command[0] in there]
    programs = dict.fromkeys(TOOLS[name].command[0] for name in config.tools if name not in present)
    names = [name for name in present if command_of(config, name) not in elsewhere]
    missing = [f"{program} is not installed on any host" for program in programs]
    missing += filter(None, (elsewhere.get(command_of(config, name)) for name in present))
    settings = _without_rest(config, names)
    if "devices" in settings:
        devices = ", ".join(config.devices or ())
        missing.append(f"RDMA devices {devices}: no tool for them is installed on any host")
    return Others(
        names=names,
        missing=missing,
        settings=settings,
        commands=[command_of(config, name) for name in names],
        seconds=sum(_seconds(config, name, nproc) for name in names),
    )


def _without_rest(config: Config, names: Sequence[str]) -> dict[str, Any]:
    """The settings that take back what a config says of its other tools alone."""
    settings: dict[str, Any] = {}
    if not config.arguments.keys() <= {*names}:
        settings["arguments"] = {name: words for name, words in config.arguments.items() if name in names}
    if config.devices is not None and {TOOLS[name].scope for name in names} <= {"host"}:
        settings["devices"] = None
    return settings


def _seconds(config: Config, name: str, nproc: int) -> float:
    devices = nproc if config.devices is None else len(config.devices)
    calls = {"host": 1, "loopback": devices, "pairs": devices * MOST_MEETINGS, "ring": 1}
    return calls[TOOLS[name].scope] * TOOLS[name].usual_seconds(config.words_of(name))


def installed(hosts: Mapping[str, Host], names: Sequence[str]) -> tuple[set[str] | None, list[str]]:
    """The programs of the tools `names` that some host has (None: no host answers), and a sentence on those that cannot
    be asked, of which the next run says what is wrong.
    """
    folders = ":".join(dict.fromkeys(folder for name in names for folder in TOOLS[name].folders))
    argv = ["sh", "-c", SCRIPT, "sh", folders, *dict.fromkeys(TOOLS[name].command[0] for name in names)]

    def asked(host: Host) -> list[str]:
        host.connect()
        return host.run(argv, deadline=SECONDS, check=False).stdout.split()

    result = for_each(hosts, asked)
    failed = [*result.failed.values()]
    others = f" (and {len(failed) - 1} more hosts)" if failed[1:] else ""
    silent = [f"tools of others: {error}"[:300] + others for error in failed[:1]]
    there = {program for found in result.succeeded.values() for program in found}
    return there if result.succeeded else None, silent
