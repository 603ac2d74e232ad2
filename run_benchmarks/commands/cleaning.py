"""Removes what a run left on the hosts: containers by label, process trees by their state folder; ours alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath

from run_benchmarks.console.console import complain
from run_benchmarks.errors import ConfigError, Problem
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import FleetResult, for_each
from run_benchmarks.plan.plan import LABEL, Plan
from run_benchmarks.runtimes.docker import call
from run_benchmarks.session.preparation import RUN_ID
from run_benchmarks.state.journal import Journal, JournalError
from run_benchmarks.state.run_lock import is_controlled

SECONDS = 60.0
TREES = 'for state in "$1"/*/*/*.workload "$1"/*/*/*.monitor; do [ -d "$state" ] && echo "$state"; done; true'
# Arguments: state folder, interpreter, folder of all code folders. Any will do: the run's may be older than ours, and
# code of version 0.1 has the supervisor one folder higher.
STOP = """
for code in "$3"/*/; do
  for module in launch.supervise supervise; do
    [ -e "$code/training/benchmarks/driver/$(echo $module | tr . /).py" ] || continue
    PYTHONPATH=$code exec "$2" -m training.benchmarks.driver.$module stop --grace 2 --state "$1"
  done
done
echo "no code in $3" >&2
exit 1
"""


def check_run(folder: Path, plan: Plan) -> None:
    """Whether `plan` is where the run in `folder` left something; says so where there is no such folder.

    Raises:
        JournalError: a controller works on the run, or it was begun with another runtime or another place on the hosts.
    """
    if is_controlled(folder):
        raise JournalError(f"{folder}: a controller works on this run: end that first: `run.py stop {folder.name}`")
    if not folder.is_dir():
        complain(f"warning: there is no {folder}: of a run of another result folder nothing will be found")
    try:
        started = Journal(folder).read().started
    except JournalError:
        return
    then = (started.runtime or plan.runtime, started.log_root_host or plan.log_root_host)
    if then != (plan.runtime, plan.log_root_host):
        raise JournalError(
            f"{folder}: begun with RUNTIME {then[0]!r} and {then[1]} on the hosts, from {started.test_conf}; now it is "
            f"{plan.runtime!r} and {plan.log_root_host}, where nothing of it is found. Clean with the files of then"
        )


def clean(hosts: Mapping[str, Host], plan: Plan) -> FleetResult[list[str]]:
    """Clean every host at once; per host the names of what was removed.

    Raises:
        ConfigError: the plan's run id is not one of ours (it becomes part of a path that is removed).
    """
    if not RUN_ID.fullmatch(plan.run_id):
        problem = Problem("clean", "RUN_ID", plan.run_id, "the name of a run folder, such as run20261121191924")
        raise ConfigError([problem])

    def clean_host(host: Host) -> list[str]:
        host.connect()
        removed = _containers(host, plan.key) if plan.runtime == "docker" else _trees(host, plan)
        host.run(["rm", "-rf", plan.log_root_host], deadline=SECONDS)
        return removed

    return for_each(hosts, clean_host)


def _containers(host: Host, key: str) -> list[str]:
    client = host.docker()
    label = f"{LABEL}.run={key}"
    found = call(host, "listing containers", lambda: client.containers(all=True, filters={"label": label}))
    for container in found:
        call(host, "removing a container", partial(client.remove_container, container["Id"], force=True, v=True))
    return [container["Names"][0].lstrip("/") for container in found]


def _trees(host: Host, plan: Plan) -> list[str]:
    states = host.run(["sh", "-c", TREES, "sh", plan.log_root_host], deadline=SECONDS).stdout.splitlines()
    python = plan.cases[0].rounds[0].nodes[0].workload.argv[0]
    for state in states:
        code = str(PurePosixPath(plan.code_dir_host).parent)
        host.run(["sh", "-c", STOP, "sh", state, python, code], deadline=SECONDS)
    return [state.removeprefix(plan.log_root_host + "/") for state in states]
