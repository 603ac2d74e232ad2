"""Selects the hosts of cluster_conf.py that take part in a run: --hosts, --exclude, and hosts named by cases."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.settings.settings import Settings
from run_benchmarks.settings.value_types import repeated_hosts

COMMAND_LINE = "command line"


@dataclass(frozen=True, kw_only=True)
class HostSelection:
    """The values of --hosts and --exclude: comma-separated names of HOSTS; None if not given."""

    hosts: str | None = None
    exclude: str | None = None


def select_hosts(settings: Settings, selection: HostSelection) -> Settings:
    """The settings with HOSTS reduced to --hosts, in its order, without --exclude.

    Raises:
        InputProblems: a name is not in HOSTS or is repeated, or no host is left.
    """
    problems: list[Problem] = []
    chosen = settings.cluster.HOSTS
    if selection.hosts is not None:
        chosen = _names("--hosts", selection.hosts, settings, problems)
    if selection.exclude is not None:
        excluded = _names("--exclude", selection.exclude, settings, problems)
        chosen = tuple(name for name in chosen if name not in excluded)
        if not chosen and not problems:
            allowed = "at least one of HOSTS has to be left"
            problems.append(Problem(COMMAND_LINE, "--exclude", selection.exclude, allowed))
    if problems:
        raise InputProblems(problems)
    return settings if chosen == settings.cluster.HOSTS else with_hosts(settings, chosen)


def with_hosts(settings: Settings, hosts: Iterable[str]) -> Settings:
    """The settings with these HOSTS in place of their own."""
    return settings.model_copy(update={"cluster": settings.cluster.model_copy(update={"HOSTS": tuple(hosts)})})


def selected(settings: Settings, recorded: Sequence[str] | None) -> Settings:
    """The settings with the hosts that a run was started with; None: all of HOSTS.

    Raises:
        InputProblems: one of them is no longer in HOSTS.
    """
    if recorded is not None and settings.cluster.are_unnamed:
        return with_hosts(settings, recorded)
    return settings if recorded is None else select_hosts(settings, HostSelection(hosts=",".join(recorded)))


def _names(option: str, value: str, settings: Settings, problems: list[Problem]) -> tuple[str, ...]:
    known = settings.cluster.HOSTS
    names = tuple(name.strip() for name in value.split(","))
    problems += [
        Problem(COMMAND_LINE, option, name, f"a name of HOSTS in {settings.cluster_file}; {nearest(name, known)}")
        for name in dict.fromkeys(names)
        if name not in known
    ]
    if mistake := repeated_hosts(names):
        problems.append(Problem(COMMAND_LINE, option, value, mistake))
    return names
