"""The command line of run.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from run_benchmarks import cleaning, run_status, starting, stopping
from run_benchmarks.check import check_hosts
from run_benchmarks.cluster_settings import LOCAL_NAMES
from run_benchmarks.console import complain, print_table, say
from run_benchmarks.errors import ConfigError, ConnectError
from run_benchmarks.findings import HostReport
from run_benchmarks.host_selection import HostSelection, select_hosts, selected
from run_benchmarks.hosts import host_keys
from run_benchmarks.interruption import EXIT_INTERRUPTED
from run_benchmarks.journal import JournalError, recorded_hosts
from run_benchmarks.plan_view import masked
from run_benchmarks.preparation import (
    OWNER_FILE,
    ROOT,
    connected,
    new_run_id,
    owner_of,
    prepare,
    result_root,
    run_folder,
)
from run_benchmarks.session import EXIT_CHECK, EXIT_FAIL, EXIT_PASS, EXIT_USAGE
from run_benchmarks.settings import Settings, load_settings

CONFIG = ROOT / "run_benchmarks" / "config"
SELECTING = ("run", "plan", "check", "diagnose")
RUN_ID_SLOT = "run<timestamp>"

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Benchmark the cluster of cluster_conf.py with the cases of test_conf.py. Without a command: run.",
)
ClusterConfOption = Annotated[Path, typer.Option("--cluster-conf", help="the hosts", metavar="F", dir_okay=False)]
DetachOption = Annotated[bool, typer.Option("--detach", help="go on in the background; see `status` and `attach`")]
TestConfOption = Annotated[Path, typer.Option("--test-conf", help="the cases", metavar="F", dir_okay=False)]
HostsOption = Annotated[str | None, typer.Option("--hosts", help="these of HOSTS alone, in this order", metavar="A,B")]
ExcludeOption = Annotated[str | None, typer.Option("--exclude", help="HOSTS without these", metavar="A,B")]
SaveOption = Annotated[
    Path | None, typer.Option("--save-baseline", help="keep what the network cases measure, if all passes", metavar="F")
]
OverwriteOption = Annotated[bool, typer.Option("--overwrite-baseline", help="even where that file is there already")]
DEFAULT_CLUSTER = CONFIG / "cluster_conf.py"
DEFAULT_TEST = CONFIG / "test_conf.py"


@app.callback(invoke_without_command=True)
def default(
    context: typer.Context,
    cluster_conf: ClusterConfOption = DEFAULT_CLUSTER,
    test_conf: TestConfOption = DEFAULT_TEST,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
    save_baseline: SaveOption = None,
    overwrite_baseline: OverwriteOption = False,
    detach: DetachOption = False,
) -> None:
    """Run the benchmarks, unless a command follows."""
    selection = HostSelection(hosts=hosts, exclude=exclude)
    context.obj = (cluster_conf, test_conf, selection)
    command = context.invoked_subcommand
    if command is None:
        settings = select_hosts(load_settings(cluster_conf, test_conf), selection)
        raise typer.Exit(starting.start(settings, detach=detach, learn=_learn(save_baseline, overwrite_baseline)))
    if save_baseline is not None or overwrite_baseline:
        raise typer.BadParameter("--save-baseline stands before no command but after `run`")
    if selection != HostSelection() and command not in SELECTING:
        raise typer.BadParameter(f"--hosts and --exclude are for {', '.join(SELECTING)}")
    if detach:
        raise typer.BadParameter("--detach stands before no command but after `run` or `resume`")


def _learn(file: Path | None, overwrite: bool) -> starting.BaselineTarget | None:
    if file is None and overwrite:
        raise typer.BadParameter("--overwrite-baseline needs --save-baseline, whose file it replaces")
    return None if file is None else starting.BaselineTarget(file=file, overwrite=overwrite)


def _settings(context: typer.Context, cluster_conf: Path | None, test_conf: Path | None) -> Settings:
    """The files named before the command, or after it."""
    before_cluster, before_test, _ = context.obj
    return load_settings(cluster_conf or before_cluster, test_conf or before_test)


def _narrowed(
    context: typer.Context, cluster_conf: Path | None, test_conf: Path | None, hosts: str | None, exclude: str | None
) -> Settings:
    """The same, with the hosts that were named before the command, or after it."""
    before = context.obj[2]
    selection = HostSelection(
        hosts=before.hosts if hosts is None else hosts, exclude=before.exclude if exclude is None else exclude
    )
    return select_hosts(_settings(context, cluster_conf, test_conf), selection)


AfterCluster = Annotated[Path | None, typer.Option("--cluster-conf", help="the hosts", metavar="F", dir_okay=False)]
AfterTest = Annotated[Path | None, typer.Option("--test-conf", help="the cases", metavar="F", dir_okay=False)]


RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="name of the run, e.g. run20261121191924")]


@app.command()
def run(
    context: typer.Context,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
    save_baseline: SaveOption = None,
    overwrite_baseline: OverwriteOption = False,
    detach: DetachOption = False,
) -> None:
    """Check the hosts, run every case, collect and report."""
    settings = _narrowed(context, cluster_conf, test_conf, hosts, exclude)
    raise typer.Exit(starting.start(settings, detach=detach, learn=_learn(save_baseline, overwrite_baseline)))


@app.command()
def resume(
    context: typer.Context,
    run_id: RunArgument,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
    detach: DetachOption = False,
) -> None:
    """Go on with a run whose controller was killed: what has ended stays, a round that still runs is taken over."""
    raise typer.Exit(starting.resume(_settings(context, cluster_conf, test_conf), run_id, detach=detach))


@app.command()
def status(
    context: typer.Context,
    run_id: Annotated[str | None, typer.Argument(metavar="RUN", help="one run; without it, all")] = None,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
) -> None:
    """Say what runs, what has ended and what was left by a killed controller; asks no host."""
    root = result_root(_settings(context, cluster_conf, test_conf))
    folders = [run_folder(root, run_id)] if run_id else sorted(root.glob("run*"))
    print_table("", run_status.COLUMNS, run_status.rows(folders))


@app.command()
def attach(
    context: typer.Context, run_id: RunArgument, cluster_conf: AfterCluster = None, test_conf: AfterTest = None
) -> None:
    """Show a run's log as it grows, and leave with the run's exit code; Ctrl-C leaves the run alone."""
    root = result_root(_settings(context, cluster_conf, test_conf))
    raise typer.Exit(run_status.follow(run_folder(root, run_id), sys.stdout))


@app.command()
def stop(
    context: typer.Context,
    run_id: RunArgument,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
    now: Annotated[bool, typer.Option("--now", help="at once, leaving what runs on the hosts to `clean`")] = False,
) -> None:
    """End a run that is worked on, as SIGTERM does: what runs on the hosts is stopped, what there is is kept."""
    root = result_root(_settings(context, cluster_conf, test_conf))
    raise typer.Exit(stopping.stop(run_folder(root, run_id), sys.stdout, at_once=now))


@app.command()
def plan(
    context: typer.Context,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
) -> None:
    """Print what a run would do, as JSON, without touching a host."""
    prepared = prepare(_narrowed(context, cluster_conf, test_conf, hosts, exclude), RUN_ID_SLOT)
    for warning in prepared.resolved.warnings:
        complain(f"warning: {warning}")
    print(json.dumps(masked(prepared.plan), indent=2, ensure_ascii=False))


@app.command()
def check(
    context: typer.Context,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
) -> None:
    """Check every host at once, changing nothing; exit code 3 where one cannot take part."""
    prepared = prepare(_narrowed(context, cluster_conf, test_conf, hosts, exclude), new_run_id())
    with connected(prepared.settings.cluster) as reached:
        reports = check_hosts(reached, prepared.settings, prepared.plan, prepared.resolved.vendor)
    print_table(
        "", ("host", "verdict", "kernel", "Docker", "image", "devices", "clock", "interface"), _host_rows(reports)
    )
    findings = [finding for report in reports.values() for finding in report.findings]
    if findings:
        rows = [(f.host, f.severity, f.subject, f.found, f.expected, f.action) for f in findings]
        print_table("", ("host", "severity", "what", "found", "expected", "what to do"), rows)
    raise typer.Exit(EXIT_CHECK if any(finding.severity == "failure" for finding in findings) else EXIT_PASS)


def _host_rows(reports: dict[str, HostReport]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for report in reports.values():
        facts = report.facts
        verdict = "failed" if report.failed else "ok"
        if facts is None:
            rows.append((report.host, verdict, "", "", "", "", "", ""))
            continue
        clock = f"{facts.clock_offset * 1000:+.0f} ms"
        devices = str(len(facts.devices))
        interface = facts.interface or ""
        images = ", ".join(f"{tag} {'there' if image_id else 'to come'}" for tag, image_id in report.images.items())
        docker = report.docker_version or ""
        rows.append((report.host, verdict, facts.kernel, docker, images, devices, clock, interface))
    return rows


@app.command()
def trust(
    context: typer.Context,
    yes: Annotated[bool, typer.Option("--yes", help="record without asking")] = False,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
) -> None:
    """Show the host keys of all hosts and record those that are unknown in KNOWN_HOSTS."""
    cluster = _settings(context, cluster_conf, test_conf).cluster
    failed = False
    for host in cluster.HOSTS:
        if host in LOCAL_NAMES:
            continue
        try:
            key = host_keys.scan(host, cluster.SSH_PORT)
        except ConnectError as error:
            complain(str(error))
            failed = True
            continue
        recorded = host_keys.recorded(cluster.KNOWN_HOSTS, host, cluster.SSH_PORT)
        if key in recorded:
            say(f"{host}: {host_keys.fingerprint(key)} is recorded")
        elif any(other.get_name() == key.get_name() for other in recorded):
            complain(f"{host}: shows {host_keys.fingerprint(key)}, another than {cluster.KNOWN_HOSTS} has")
            failed = True
        elif key in host_keys.revoked(cluster.KNOWN_HOSTS, host_keys.known_name(host, cluster.SSH_PORT)):
            complain(f"{host}: {host_keys.fingerprint(key)} is revoked in {cluster.KNOWN_HOSTS}")
            failed = True
        elif yes or typer.confirm(f"{host}: {host_keys.fingerprint(key)}: trust it?"):
            host_keys.record(cluster.KNOWN_HOSTS, host, cluster.SSH_PORT, key)
            say(f"{host}: recorded in {cluster.KNOWN_HOSTS}")
    raise typer.Exit(EXIT_CHECK if failed else EXIT_PASS)


@app.command()
def diagnose(
    context: typer.Context,
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
    hosts: HostsOption = None,
    exclude: ExcludeOption = None,
) -> None:
    """Find why hosts do not get together: ssh, names, interface, port, gloo, small and full messages."""
    raise typer.Exit(starting.diagnose(_narrowed(context, cluster_conf, test_conf, hosts, exclude)))


@app.command()
def clean(
    context: typer.Context,
    run_id: Annotated[str, typer.Argument(help="the run whose leftovers are removed, e.g. run20261121191924")],
    cluster_conf: AfterCluster = None,
    test_conf: AfterTest = None,
) -> None:
    """Remove what a run left on the hosts: its containers or processes and its log folders, nobody else's."""
    settings = _settings(context, cluster_conf, test_conf)
    root = result_root(settings)
    owner = owner_of(root) if (root / OWNER_FILE).is_file() else ""
    prepared = prepare(selected(settings, recorded_hosts(root / run_id)), run_id).named(run_id, owner)
    cleaning.check_run(root / run_id, prepared.plan)
    with connected(prepared.settings.cluster) as hosts:
        result = cleaning.clean(hosts, prepared.plan)
    for host, removed in result.succeeded.items():
        say(f"{host}: removed {', '.join(removed) or 'nothing'}")
    for error in result.failed.values():
        complain(str(error))
    raise typer.Exit(EXIT_FAIL if result.failed else EXIT_PASS)


def main() -> None:
    """Entry point: a user's mistake is one readable screen and exit code 2."""
    try:
        app()
    except ConfigError as error:
        complain(
            f"{len(error.problems)} mistake(s) in the configuration:\n" + "\n".join(f"  {p}" for p in error.problems)
        )
        sys.exit(EXIT_USAGE)
    except JournalError as error:
        complain(str(error))
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
