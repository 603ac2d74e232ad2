"""Removes what a run left on the hosts: the tasks that its runtime finds, and its folders; nothing of other runs."""

from collections.abc import Mapping
from pathlib import Path

from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.console import complain
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import FleetResult, for_each
from run_benchmarks.plan.plan import Plan
from run_benchmarks.runtimes.base import Runtime
from run_benchmarks.session.run_folder import RUN_ID
from run_benchmarks.state.journal import Journal, JournalError
from run_benchmarks.state.run_lock import is_controlled

SECONDS = 60.0
# Arguments: the run's folder, and the hosts whose tasks may still run: on a shared home they are found by their states
# alone, and the folder stays. Prints the folder if it was removed.
REMOVE = r"""
[ -e "$1" ] || exit 0
folder=$1
shift
for host; do
  for state in "$folder"/*/*/"$host"_noderank[0-9]*.workload; do
    [ ! -d "$state" ] || exit 0
  done
done
rm -rf "$folder" && printf '%s\n' "$folder"
"""


def check_run(folder: Path, plan: Plan) -> None:
    """Check that `plan` covers what the run in `folder` left; prints a note if there is no such folder.

    Raises:
        JournalError: a controller works on the run, or it was started with another runtime or another folder on the
            hosts.
    """
    if is_controlled(folder):
        stop = own_command("stop", run_word(folder))
        raise JournalError(f"{folder}: a controller works on this run: end that first: `{stop}`")
    if not folder.is_dir():
        complain(f"warning: there is no {folder}: the tasks of a run of another result folder cannot be found")
    try:
        started = Journal(folder).read().started
    except JournalError:
        return
    then = (started.runtime or plan.runtime, started.log_root_host or plan.log_root_host)
    if then != (plan.runtime, plan.log_root_host):
        raise JournalError(
            f"{folder}: begun with RUNTIME {then[0]!r} and {then[1]} on the hosts, from {started.test_conf}; now it is "
            f"{plan.runtime!r} and {plan.log_root_host}, where nothing of it is found. Clean with the files of that run"
        )


def may_have_begun(folder: Path) -> bool:
    """Whether a round of the run in `folder` may have been on hosts, by its journal."""
    if not folder.is_dir():
        return True
    try:
        return bool(Journal(folder).read().attempts)
    except JournalError:
        return False


def clean(hosts: Mapping[str, Host], plan: Plan, runtime: Runtime) -> FleetResult[list[str]]:
    """End the tasks on all hosts, and then remove the run's folders; returns the names of what was removed, by host.

    Raises:
        InputProblems: the plan's run id has another form than ours (it becomes part of a path that is removed).
    """
    if not RUN_ID.fullmatch(plan.run_id):
        problem = Problem("clean", "RUN_ID", plan.run_id, "the name of a run folder, such as run20261121191924")
        raise InputProblems([problem])

    def end(host: Host) -> list[str]:
        host.connect()
        return runtime.clean(host, plan)

    ended = for_each(hosts, end)

    def remove(host: Host) -> list[str]:
        argv = ["sh", "-c", REMOVE, "sh", plan.log_root_host, *ended.failed]
        return [*ended.succeeded[host.name], *host.run(argv, deadline=SECONDS).stdout.splitlines()]

    removed = for_each({name: hosts[name] for name in ended.succeeded}, remove)
    return FleetResult(removed.succeeded, ended.failed | removed.failed)
