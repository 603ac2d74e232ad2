"""Two names of one machine are refused; machines that only look alike are not."""

import getpass
from dataclasses import replace

import pytest

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.endpoint import Endpoint
from run_benchmarks.hosts.ssh import SshHost
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.facts import MachineIdentity
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.machines import are_one_machine, note_shared_machines
from run_benchmarks.session.preparation import prepare
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.hosts.sshd import ADDRESS, SshServer, public_part
from tests.run_benchmarks.reports import a_report

ONE = MachineIdentity(
    boot_id="b1", netns="net:[1]", machine_id="m1", host_key="AAAAk1", macs=frozenset({"02:00:00:00:00:01"})
)


def checked(sshd: SshServer, load: Load, *names: str) -> dict[str, HostReport]:
    """The check of these names, all of which lead to the one sshd."""
    key = public_part(sshd.host_key)
    known_hosts = sshd.folder / "two_names"
    known_hosts.write_text("".join(f"[{name}]:{sshd.port} {key}\n" for name in names))
    prepared = prepare(load(TEST, f"HOSTS = {[f'node{n}' for n in range(len(names))]!r}\n"), "run20261121191924")
    hosts: dict[str, Host] = {
        name: SshHost(
            Endpoint(host=name, port=sshd.port, user=getpass.getuser(), key=sshd.client_key, known_hosts=known_hosts)
        )
        for name in names
    }
    try:
        return check_hosts(hosts, prepared.settings, prepared.plan, prepared.resolved.vendor, prepared.runtime())
    finally:
        for host in hosts.values():
            host.close()


def test_a_second_name_of_a_host_is_refused_with_both_names_and_the_evidence(sshd: SshServer, load: Load) -> None:
    reports = checked(sshd, load, ADDRESS, "localhost")
    assert not any(finding.subject == "machine" for finding in reports[ADDRESS].findings)
    (finding,) = [finding for finding in reports["localhost"].findings if finding.subject == "machine"]
    assert finding.severity == "failure" and reports["localhost"].failed
    facts = reports["localhost"].facts
    assert facts is not None and len(facts.identity.boot_id) == 36 and facts.identity.netns.startswith("net:[")
    assert facts.identity.boot_id in str(finding) and f"the same machine as {ADDRESS}" in str(finding)
    assert f"write one of the two names, {ADDRESS} or localhost" in str(finding)


@pytest.mark.parametrize(
    ("changes", "is_one"),
    [
        ({}, True),
        ({"macs": frozenset({"02:00:00:00:00:01", "fe:00:00:00:00:09"})}, True),  # a container started between the two
        ({"host_key": "AAAAk2", "machine_id": "m2"}, True),  # two sshd in containers on the machine's own network
        ({"boot_id": "b2"}, False),  # clones of one disk
        ({"netns": "net:[2]"}, False),  # containers with networks of their own
        ({"macs": frozenset({"02:00:00:00:00:02"})}, False),  # restored from one snapshot of a running machine
    ],
)
def test_what_makes_two_hosts_one_machine(changes: dict[str, object], is_one: bool) -> None:
    other = replace(ONE, **changes)  # type: ignore[arg-type]
    assert are_one_machine(ONE, other) is are_one_machine(other, ONE) is is_one


def test_a_host_that_says_nothing_of_itself_is_nobodys_double() -> None:
    assert not are_one_machine(MachineIdentity(), MachineIdentity())


def test_each_double_is_told_with_the_first_name_of_its_machine() -> None:
    reports = {
        "a": a_report("a", identity=ONE),
        "jail": a_report("jail", identity=replace(ONE, netns="net:[2]", macs=frozenset({"02:00:00:00:00:07"}))),
        "b": a_report("b", identity=ONE),
        "other": a_report("other", identity=replace(ONE, boot_id="b2")),
        "lost": HostReport(host="lost"),
        "jail2": a_report("jail2", identity=replace(ONE, netns="net:[2]", macs=frozenset({"02:00:00:00:00:07"}))),
    }
    note_shared_machines(reports)
    assert [name for name, report in reports.items() if report.failed] == ["b", "jail2"]
    assert "as a (" in str(reports["b"].findings[0]) and "as jail (" in str(reports["jail2"].findings[0])
    (warning,) = reports["jail"].findings
    assert (warning.subject, warning.severity) == ("shared kernel", "warning")
    assert reports["other"].findings == reports["lost"].findings == reports["a"].findings == []
