"""Finds the tools of others that an acceptance runs: those of the vendor's configs that the hosts have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import vendors
from protocol.case_config import load_case_config
from run_benchmarks.acceptance.rungs import Others
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.table import TOOLS

SECONDS = 30.0
# Arguments: folders to look into beside PATH, joined by colons; programs. Prints those that are there.
SCRIPT = 'PATH=$PATH:$1; shift; for name; do if command -v "$name" >/dev/null 2>&1; then echo "$name"; fi; done'


def tools_of(vendor: str, config: str) -> list[str]:
    """The tools that a config of the vendor names; none if it has no such config."""
    path = vendors.case_dir(vendor, "tools", "pytorch") / "config" / f"{config}.py"
    return load_case_config(Config, path, {}).tools if path.is_file() else []


def installed(hosts: Mapping[str, Host], names: Sequence[str]) -> Others:
    """The tools among `names` that some host has, and sentences on those that none has.

    A host that cannot be asked has none, and is said: the next run says what is wrong with it.
    """
    programs = {name: TOOLS[name].command[0] for name in names}
    folders = ":".join(dict.fromkeys(folder for name in names for folder in TOOLS[name].folders))
    argv = ["sh", "-c", SCRIPT, "sh", folders, *dict.fromkeys(programs.values())]

    def asked(host: Host) -> list[str]:
        host.connect()
        return host.run(argv, deadline=SECONDS, check=False).stdout.split()

    result = for_each(hosts, asked)
    there = {program for found in result.succeeded.values() for program in found}
    missing = dict.fromkeys(program for program in programs.values() if program not in there)
    failed = [*result.failed.values()]
    others = f" (and {len(failed) - 1} more hosts)" if failed[1:] else ""
    silent = [f"tools of others: {error}"[:300] + others for error in failed[:1]]
    nowhere = [f"{program} is not installed on any host" for program in missing if result.succeeded]
    return Others(names=[name for name, program in programs.items() if program in there], missing=[*silent, *nowhere])
