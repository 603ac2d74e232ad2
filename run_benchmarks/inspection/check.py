"""Checks all hosts in parallel before a run; each finding states host, found, expected and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from run_benchmarks import errors
from run_benchmarks.console.command_line import own_command
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.outages import IMPATIENT, Patience, across_outages
from run_benchmarks.inspection.capacity import (
    check_load,
    check_sizes,
    check_strangers,
    look_at_image_folder,
    need_folders,
    note_space,
)
from run_benchmarks.inspection.facts import Questions, gather
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.machines import note_shared_machines
from run_benchmarks.inspection.master_port import candidates
from run_benchmarks.plan.plan import CasePlan, Plan
from run_benchmarks.runtimes.base import Runtime
from run_benchmarks.settings.host_access import deploy_path, login_command, way_in
from run_benchmarks.settings.settings import Settings
from vendors import Vendor

CLOCK_WARN_SECONDS = 0.5
CLOCK_FAIL_SECONDS = 5.0
TIMED_OUT = "124"  # the exit code of timeout(1)
MOST_CHARACTERS = 160


def check_hosts(
    hosts: Mapping[str, Host],
    settings: Settings,
    plan: Plan,
    vendor: Vendor,
    runtime: Runtime,
    patience: Patience = IMPATIENT,
) -> dict[str, HostReport]:
    """Connect to all hosts at once and examine each; nothing on them is changed except our own folders.

    A host whose link breaks once it had answered is asked again; one that does not answer at all is reported at once.
    """

    def examine(host: Host) -> HostReport:
        report = HostReport(host=host.name)
        if _greet(report, host, settings):
            return report
        try:
            return across_outages(host, lambda: _examine(host, settings, plan, vendor, runtime), patience)
        except (errors.LoginShellError, errors.NotBegunError) as error:
            action = f"`{login_command(host.name, settings.cluster)} echo in` must print only that word"
            report.add("login shell", error.detail, "one that runs a command", action)
            return report

    result = for_each(hosts, examine, reads_hosts=True)
    reports = {name: result.succeeded.get(name) or HostReport(host=name) for name in hosts}
    for name, error in result.failed.items():
        if isinstance(error, errors.HostKeyError):
            _add_key(reports[name], error, settings)
        else:
            reports[name].add("facts", str(error), "answers that can be read", "log in and look")
    note_shared_machines(reports)
    note_space(reports, settings, max((image.unpacked_bytes for image in vendor.images.values()), default=0))
    return reports


def _trust(settings: Settings) -> str:
    command = own_command("--cluster-conf", str(settings.cluster_file.resolve()), "trust")
    return f"compare the keys; once this one is known to be the host's own: {command}"


def _add_key(report: HostReport, error: errors.HostKeyError, settings: Settings) -> None:
    report.add("host key", error.detail, "the recorded key", _trust(settings))


def _greet(report: HostReport, host: Host, settings: Settings) -> bool:
    """Connect to a host; whether the report then says why it failed."""
    try:
        host.connect()
    except errors.HostKeyError as error:
        _add_key(report, error, settings)
    except errors.ConnectError as error:
        way = way_in(host.name, settings.cluster)
        report.add(way.subject, str(error).partition(": ")[2], way.expected, f"try: {way.command}")
    return bool(report.findings)


def _examine(host: Host, settings: Settings, plan: Plan, vendor: Vendor, runtime: Runtime) -> HostReport:
    """Examine a connected host."""
    report = HostReport(host=host.name)
    cases = [case for case in plan.cases if host.name in case.hosts]
    possible = [case for case in plan.cases if host.name in case.allowed_hosts]
    try:
        report.facts = gather(host, _questions(plan, vendor, runtime, cases, possible))
        for remark in host.remarks():
            report.add(remark.subject, remark.found, remark.expected, remark.action, "warning")
    except (errors.LinkLostError, errors.ConnectError, errors.DeadlineError, errors.LoginShellError):
        raise
    except errors.ClusterDynoError as error:
        report.add("facts", str(error), "a POSIX shell with coreutils and awk", "log in and look")
        return report
    _check_paths(report, settings, plan)
    _check_clock(report)
    _check_devices(report, vendor, cases)
    _check_data(report, possible)
    check_sizes(report, report.facts, possible)
    check_load(report, report.facts, settings.cluster.MAX_LOAD)
    if cases:
        check_strangers(report, report.facts, allowed=settings.cluster.ALLOW_BUSY_DEVICES)
    _check_network(report, settings, runtime, cases)
    _check_runtime(report, host, runtime, cases)
    return report


def _questions(
    plan: Plan, vendor: Vendor, runtime: Runtime, cases: list[CasePlan], possible: list[CasePlan]
) -> Questions:
    """The questions for a host that runs `cases`, and may replace a lost host in the `possible` ones."""
    names = _partners(cases)
    python = runtime.host_python(cases or plan.cases)  # a spare host may have to replace a lost one
    return Questions(
        deploy=str(Path(plan.code_dir_host).parent),
        log_root=str(Path(plan.log_root_host).parent),
        code_dir=plan.code_dir_host,
        python=python.interpreter if python else None,
        packages=python.packages if python else (),
        master=names[0] if names else None,
        names=names,
        device_globs=vendor.device_files,
        device_memory=vendor.device_memory,
        device_processes=vendor.device_processes,
        link_devices=vendor.link_devices,
        data=sorted({case.data_dir_host for case in possible if case.data_dir_host}),
    )


def _partners(cases: list[CasePlan]) -> tuple[str, ...]:
    """The hosts that one host meets in its cases, the master of the first case first; none if it runs alone."""
    return tuple(dict.fromkeys(name for case in cases if case.nnodes > 1 for name in case.hosts))


def _check_paths(report: HostReport, settings: Settings, plan: Plan) -> None:
    facts = report.facts
    assert facts is not None
    keys = {
        str(Path(plan.code_dir_host).parent): "FLAGPERF_PATH_HOST",
        str(Path(plan.log_root_host).parent): "FLAGPERF_LOG_PATH_HOST",
    }
    for folder, problem in facts.unwritable.items():
        default = deploy_path(settings.cluster)
        action = f"give {facts.user} write access or set {keys[folder]} (default: below {default})"
        report.add("writable path", f"{folder}: {problem}", "a folder we can write to", action)
    need_folders(report, facts, plan)


def _check_clock(report: HostReport) -> None:
    facts = report.facts
    assert facts is not None
    offset = max(0.0, abs(facts.clock_offset) - facts.clock_error)
    if offset > CLOCK_WARN_SECONDS:
        report.add(
            "clock",
            f"{facts.clock_offset:+.2f} s from the head node's",
            f"within {CLOCK_WARN_SECONDS} s",
            "synchronise with NTP (chronyc makestep)",
            "failure" if offset > CLOCK_FAIL_SECONDS else "warning",
        )


def _check_devices(report: HostReport, vendor: Vendor, cases: list[CasePlan]) -> None:
    facts = report.facts
    assert facts is not None
    # Ranks of gloo compute on the CPU, whatever devices their vendor has.
    needed = max((case.nproc for case in cases if case.backend != "gloo"), default=0)
    if vendor.device_files and len(facts.devices) < needed:
        globs = ", ".join(vendor.device_files)
        found = f"{len(facts.devices)} ({', '.join(facts.devices) or 'none'})"
        action = f"install the {vendor.name} driver, lower nproc, or use another host"
        report.add("devices", found, f"{needed} device files {globs}, one per process", action)
    if needed and (trouble := facts.device_trouble):
        code, _, said = trouble.partition(" ")
        answered = code == TIMED_OUT or facts.device_free  # late, or of some devices
        what = "no answer in 8 s" if code == TIMED_OUT else f"exit code {code}: {said[:MOST_CHARACTERS]}"
        action = "load the driver again or restart the host"
        report.add("driver", what, "the memory of each device", action, "warning" if answered else "failure")


def _check_data(report: HostReport, cases: list[CasePlan]) -> None:
    """Exclude a host from the cases whose data is missing, and from no other."""
    facts = report.facts
    assert facts is not None
    for case in cases:
        if case.data_dir_host and case.data_dir_host not in facts.data:
            action = f"copy the data there or change data_dir_host of case {case.name}"
            found, expected = f"no readable {case.data_dir_host}", "the case's data on every host"
            report.bar(case.name, "data", found, expected, action, is_planned=report.host in case.hosts)


def _check_network(report: HostReport, settings: Settings, runtime: Runtime, cases: list[CasePlan]) -> None:
    facts = report.facts
    assert facts is not None
    _check_master_port(report, facts.listening, settings.cluster.MASTER_PORT, cases)
    partners = _partners(cases)
    if not partners:
        return
    interface = settings.cluster.NETWORK_INTERFACE
    if interface != "auto" and facts.networks and interface not in facts.networks:
        expected = f"NETWORK_INTERFACE, {interface}, on every host"
        action = 'write one that all of them have, or "auto"'
        report.add("interface", f"only {', '.join(sorted(facts.networks))}", expected, action)
    missing = [name for name in partners if name not in facts.resolves]
    if missing:
        _tell_unresolved(report, missing, runtime)
    if facts.interface == "lo" and report.host != partners[0]:
        action = "let the master's name stand for its network address in /etc/hosts of this host"
        report.add("interface", "the master resolves to a loopback address", "an interface that reaches it", action)
    elif facts.interface is None and interface == "auto" and not missing:
        action = "it is resolved at the launch; set NETWORK_INTERFACE to be sure"
        report.add("interface", "unknown (no ip command)", "the interface that reaches the master", action, "warning")


def _check_master_port(report: HostReport, taken: frozenset[int], first: int, cases: list[CasePlan]) -> None:
    """Check that the master of a case has a port for torchrun, `first` or one after it."""
    if any(report.host == case.hosts[0] for case in cases) and taken.issuperset(candidates(first)):
        ports = candidates(first)
        expected = f"one from {ports.start} to {ports.stop - 1}"
        report.add("master port", "no free port", expected, "change MASTER_PORT")


def _tell_unresolved(report: HostReport, missing: list[str], runtime: Runtime) -> None:
    """Report names of partners that do not resolve: a failure, unless the tasks get addresses."""
    found = f"{', '.join(missing)} do not resolve"
    if runtime.gives_addresses:
        action = "the tasks get the addresses that the head node uses"
        report.add("names", found, "names that resolve", action, "warning")
    else:
        action = "add them to /etc/hosts or write IP addresses in HOSTS"
        report.add("names", found, "every name of HOSTS to resolve on every host", action)


def _check_runtime(report: HostReport, host: Host, runtime: Runtime, cases: list[CasePlan]) -> None:
    facts = report.facts
    assert facts is not None
    found = runtime.readiness(host, facts, cases)
    report.docker_version = found.engine_version
    report.images, report.image_sizes = found.images, found.image_sizes
    for failure in found.failures:
        report.add(failure.subject, failure.found, failure.expected, failure.action)
    if found.image_folder is not None:
        look_at_image_folder(report, host, found.image_folder)
