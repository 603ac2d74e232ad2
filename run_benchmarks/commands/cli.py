"""The command line of run.py."""

from __future__ import annotations

import json
import sys
import textwrap
from pathlib import Path
from typing import Annotated

import typer

from run_benchmarks.commands import (
    accepting,
    attaching,
    cleaning,
    collecting,
    comparing,
    completion,
    draining,
    exporting,
    history,
    import_flagperf,
    listing,
    reporting,
    showing,
    starting,
    stopping,
    verification,
)
from run_benchmarks.commands import status as run_status
from run_benchmarks.commands.check_view import show_reports
from run_benchmarks.commands.layout_view import LAYOUT_COLUMNS, layout_rows
from run_benchmarks.commands.options import (
    DEFAULT_TEST,
    CaseOption,
    ClusterConfOption,
    DetachOption,
    ExcludeOption,
    HostsOption,
    OverwriteOption,
    RepeatOption,
    Request,
    RunArgument,
    SaveOption,
    SetOption,
    TestConfOption,
    VersionOption,
    asked_for,
    of_a_run,
    request,
    selecting,
)
from run_benchmarks.commands.plan_manifests import job_sets, slurm_script
from run_benchmarks.commands.plan_view import SETTING_COLUMNS, masked, setting_rows
from run_benchmarks.commands.run_reference import existing_run, find_run, settings_of, typical_seconds
from run_benchmarks.commands.trusting import trust_hosts
from run_benchmarks.console.console import complain, guard_console, print_table, say
from run_benchmarks.errors import ConfigError, HistoryError
from run_benchmarks.hosts.slurm.allocation import AllocationError
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.session.allocation import allocated
from run_benchmarks.session.preparation import connected, prepare
from run_benchmarks.session.run_folder import OWNER_FILE, new_run_id, owner_of, result_root
from run_benchmarks.settings.host_selection import selected
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_USAGE
from run_benchmarks.state.journal import BaselineTarget, JournalError, recorded_hosts

SELECTING = ("run", "accept", "plan", "check", "diagnose")
RUN_ID_SLOT = "run<timestamp>"

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Benchmark the cluster of cluster_conf.py with the cases of test_conf.py. Without a command: run.",
)


@app.callback(invoke_without_command=True)
def default(
    context: typer.Context,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
    case: CaseOption = None,
    sets: SetOption = None,
    repeat: RepeatOption = None,
    save_baseline: SaveOption = None,
    overwrite_baseline: OverwriteOption = False,
    detach: DetachOption = False,
    version: VersionOption = False,
) -> None:
    """Run the benchmarks, unless a command follows."""
    context.obj = asked = request(cluster_conf, test_conf, hosts, exclude, case, sets, repeat)
    command = context.invoked_subcommand
    if command is None:
        learn = _learn(save_baseline, overwrite_baseline)
        raise typer.Exit(starting.start(asked.settings(), detach=detach, learn=learn))
    if save_baseline is not None or overwrite_baseline:
        raise typer.BadParameter("--save-baseline must come after `run`, not before a command")
    if asked.is_selecting and command not in SELECTING:
        raise typer.BadParameter(f"--hosts, --exclude, --case, --set and --repeat are for {', '.join(SELECTING)}")
    if detach:
        raise typer.BadParameter("--detach must come after `run` or `resume`, not before a command")


def _learn(file: Path | None, overwrite: bool) -> BaselineTarget | None:
    if file is None and overwrite:
        raise typer.BadParameter("--overwrite-baseline needs --save-baseline, whose file it replaces")
    return None if file is None else BaselineTarget(file=file.expanduser().absolute(), overwrite=overwrite)


@app.command()
def run(
    context: typer.Context,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
    case: CaseOption = None,
    sets: SetOption = None,
    repeat: RepeatOption = None,
    save_baseline: SaveOption = None,
    overwrite_baseline: OverwriteOption = False,
    detach: DetachOption = False,
) -> None:
    """Check the hosts, run every case, collect and report."""
    settings = request(cluster_conf, test_conf, hosts, exclude, case, sets, repeat).over(context.obj).settings()
    raise typer.Exit(starting.start(settings, detach=detach, learn=_learn(save_baseline, overwrite_baseline)))


@app.command()
def accept(
    context: typer.Context,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
    hosts: HostsOption = None,
    rungs: Annotated[
        str, typer.Option("--rungs", metavar="A,B", help="of health, single, network, whole")
    ] = "health,single,network,whole",
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="30m, 2h: for all rungs together")] = "1h",
    nproc: Annotated[int, typer.Option("--nproc", metavar="N", min=1, help="processes, and devices, of a host")] = 2,
) -> None:
    """Say which hosts to take out of service, with proof: health, devices, network, a training, each with a gate."""
    asked = request(cluster_conf, test_conf, hosts).over(context.obj)
    raise typer.Exit(accepting.accept(asked, rungs=rungs, budget=budget, nproc=nproc))


@app.command()
@of_a_run
def resume(asked: Request, folder: Path, detach: DetachOption = False) -> None:
    """Continue a run whose controller was killed: finished rounds are kept, a round that still runs is taken over."""
    settings = settings_of(folder, asked.cluster_conf, asked.test_conf)
    raise typer.Exit(starting.resume(settings, folder, detach=detach))


@app.command()
def status(
    context: typer.Context,
    run_id: Annotated[str | None, typer.Argument(metavar="RUN", help="one run; default: all")] = None,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
) -> None:
    """Show which runs are active, ended or left by a killed controller; contacts no host."""
    asked = asked_for(context, cluster_conf, test_conf)
    if run_id is not None:
        folders = [find_run(run_id, asked.test_conf, DEFAULT_TEST)]
    else:
        folders = sorted(result_root(asked.settings()).glob("run*"))
    print_table("", run_status.COLUMNS, run_status.rows(folders))
    for line in run_status.ways_on(folders):
        print(line)


@app.command()
@of_a_run
def attach(asked: Request, folder: Path) -> None:
    """Show a run's log as it grows, below it all its cases on a terminal; Ctrl-C does not affect the run.

    Exits with the run's exit code.
    """
    raise typer.Exit(
        attaching.follow(folder, sys.stdout, lambda cases: typical_seconds(folder, asked.test_conf, cases))
    )


@app.command()
@of_a_run
def stop(
    asked: Request,
    folder: Path,
    now: Annotated[
        bool, typer.Option("--now", help="immediately, without stopping tasks on the hosts; `clean` removes them")
    ] = False,
) -> None:
    """End an active run, as SIGTERM does: its tasks on the hosts are stopped, its results so far are kept."""
    raise typer.Exit(stopping.stop(folder, sys.stdout, at_once=now))


@app.command()
def plan(
    context: typer.Context,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
    case: CaseOption = None,
    sets: SetOption = None,
    repeat: RepeatOption = None,
    settings: Annotated[bool, typer.Option("--settings", help="each case's settings and where each is set")] = False,
    slurm: Annotated[bool, typer.Option("--slurm", help="the batch script and the steps that Slurm receives")] = False,
    kubernetes: Annotated[bool, typer.Option("--kubernetes", help="JobSets; not tried on a cluster")] = False,
) -> None:
    """Print what a run would do, as JSON, without touching a host; or the settings of its cases, as tables."""
    asked = request(cluster_conf, test_conf, hosts, exclude, case, sets, repeat).over(context.obj)
    prepared = prepare(asked.settings(), RUN_ID_SLOT)
    for warning in prepared.resolved.warnings:
        complain(f"warning: {warning}")
    if slurm:
        print(slurm_script(prepared), end="")
        return
    shown = job_sets(prepared) if kubernetes else masked(prepared.plan)
    if not settings or kubernetes:
        print(json.dumps(shown, indent=2, ensure_ascii=False))
        return
    for each in shown["cases"]:
        print_table(f"{each['name']}: {each['config_file']}", SETTING_COLUMNS, setting_rows(each))
        if rows := layout_rows(each):
            print_table(f"{each['name']}: layout = 'auto'", LAYOUT_COLUMNS, rows)


@app.command()
@selecting
def check(asked: Request) -> None:
    """Check all hosts in parallel, changing nothing; exit code 3 if one cannot take part."""
    planned = prepare(asked.settings(), new_run_id())
    with allocated(planned) as prepared, connected(prepared.settings.cluster, prepared.allocation) as reached:
        reports = check_hosts(reached, prepared.settings, prepared.plan, prepared.resolved.vendor, prepared.runtime())
    show_reports(reports)
    failed = any(finding.severity == "failure" for report in reports.values() for finding in report.findings)
    raise typer.Exit(EXIT_CHECK if failed else EXIT_PASS)


@app.command()
def trust(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="record without asking")] = False,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
) -> None:
    """Show the host keys of all hosts and record those that are unknown in KNOWN_HOSTS."""
    cluster = asked_for(context, cluster_conf, test_conf).settings().cluster
    failed = trust_hosts(cluster, lambda question: yes or typer.confirm(question))
    raise typer.Exit(EXIT_CHECK if failed else EXIT_PASS)


@app.command()
@selecting
def diagnose(asked: Request) -> None:
    """Find out why hosts cannot communicate: ssh, names, interface, port, gloo, small and full messages."""
    raise typer.Exit(starting.diagnose(asked.settings()))


app.command()(collecting.collect)
app.command()(draining.drain)
app.command()(draining.undrain)
app.command("compare")(comparing.compare_runs)
app.command("report")(reporting.report)
app.command("show")(showing.show_run)
app.command("export")(exporting.export)
app.command("bundle")(exporting.pack)
app.command("history")(history.show_history)
app.command("list")(listing.list_all)
app.command("completion")(completion.completion)
app.command("import-flagperf")(import_flagperf.import_flagperf)


@app.command()
def clean(
    context: typer.Context,
    run_id: RunArgument,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
) -> None:
    """Remove what a run left on the hosts: its containers or processes and its log folders, nothing of other runs."""
    asked = asked_for(context, cluster_conf, test_conf)
    folder = existing_run(run_id, asked.test_conf, DEFAULT_TEST)
    if folder is None or recorded_hosts(folder) is None:  # a run of another head node, or one that has no journal yet
        settings = asked.settings()
        folder = folder or result_root(settings) / run_id
    else:
        settings = settings_of(folder, asked.cluster_conf, asked.test_conf)
    owner = owner_of(folder.parent) if (folder.parent / OWNER_FILE).is_file() else ""
    planned = prepare(selected(settings, recorded_hosts(folder)), folder.name).named(folder.name, owner)
    cleaning.check_run(folder, planned.plan)
    with allocated(planned) as prepared, connected(prepared.settings.cluster, prepared.allocation) as hosts:
        result = cleaning.clean(hosts, prepared.plan, prepared.runtime())
    for host, removed in result.succeeded.items():
        say(f"{host}: removed {', '.join(removed) or 'nothing'}")
    for error in result.failed.values():
        complain(str(error))
    raise typer.Exit(EXIT_FAIL if result.failed else EXIT_PASS)


@app.command()
def verify(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(metavar="RUN", help="name of the run, or the present path of its folder")],
    signers: Annotated[
        Path | None,
        typer.Option("--signers", exists=True, help="ssh-keygen's allowed signers, one of whom signed it"),
    ] = None,
    cluster_conf: ClusterConfOption = None,
    test_conf: TestConfOption = None,
) -> None:
    """Check offline that a result folder is unchanged: its files, numbers and verdicts; exit code 1 if not."""
    folder = Path(run_id)
    if not folder.is_dir():
        folder = find_run(run_id, asked_for(context, cluster_conf, test_conf).test_conf, DEFAULT_TEST)
    raise typer.Exit(EXIT_FAIL if verification.report(folder, say, signers) else EXIT_PASS)


def main() -> None:
    """Entry point: a user's mistake is one readable screen and exit code 2."""
    guard_console()
    try:
        app()
    except ConfigError as error:
        count = len(error.problems)
        complain(f"{count} mistake{'s' * (count > 1)} in the configuration:\n{textwrap.indent(str(error), '  ')}")
        sys.exit(EXIT_USAGE)
    except (HistoryError, JournalError, verification.NoRunError) as error:
        complain(str(error))
        sys.exit(EXIT_USAGE)
    except AllocationError as error:
        complain(str(error))
        sys.exit(EXIT_CHECK)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
