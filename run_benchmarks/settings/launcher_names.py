"""Lists the ways in which hosts are got and reached (LAUNCHER)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from run_benchmarks.hosts.slurm.node_names import expanded

UNNAMED = "<node {}>"  # a host whose name is known once its allocation is


@dataclass(frozen=True, kw_only=True)
class LauncherEntry:
    """One launcher.

    Attributes:
        prefixes: of the settings that it alone reads.
        read_hosts: makes names of the value of HOSTS; None if items are names with a user, port and key.
    """

    prefixes: tuple[str, ...]
    read_hosts: Callable[[object], tuple[str, ...]] | None


def hosts_of_slurm(value: object) -> tuple[str, ...]:
    """The hosts of a hostlist expression, a list of them, or a number of hosts, which have no names yet.

    Raises:
        ValueError: the value has another form.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return tuple(UNNAMED.format(number) for number in range(1, value + 1))
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not all(isinstance(item, str) and item for item in items):
        raise ValueError(
            "expected a hostlist such as 'gpu[01-16]', a list of such, or how many hosts (LAUNCHER 'slurm')"
        )
    return tuple(name for item in items for name in expanded(item))


LAUNCHERS: dict[str, LauncherEntry] = {
    "ssh": LauncherEntry(prefixes=("SSH_",), read_hosts=None),
    "slurm": LauncherEntry(prefixes=("SLURM_", "ALLOCATION"), read_hosts=hosts_of_slurm),
}


def _known(name: str) -> str:
    if name not in LAUNCHERS:
        raise ValueError(f"expected one of {', '.join(map(repr, LAUNCHERS))}")
    return name


LauncherName = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(LAUNCHERS)})]
