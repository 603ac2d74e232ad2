"""Warnings of the health check in an acceptance: they are shown by kind and host, within bounds, and fail nothing."""

from __future__ import annotations

from typing import Any

from protocol.finding import PartFinding
from run_benchmarks.acceptance.climb import Looked
from run_benchmarks.acceptance.warned import MOST_HOSTS, MOST_KINDS, MOST_PARTS, Warned
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.health import judged, parsed
from tests.run_benchmarks.acceptance.scripted_cluster import HOSTS, Cluster
from tests.run_benchmarks.results.network_rounds import a_round


def looked(replays: int) -> Looked:
    """What the health check says of two hosts, of which one sends again on the NVLinks of two GPUs."""
    links = f"nvlink_errors\t3\t{replays}\nnvlink_errors\t5\t{replays + 1}\n"
    texts = {"n0": f"synced\tno\n{links}end\tok\n", "n1": "synced\tno\nend\tok\n"}
    reports = {host: HostReport(host=host) for host in texts}
    for host, found in judged({host: parsed(text) for host, text in texts.items()}):
        reports[host].add(*found)
    reports["n1"].bar("MINE", "memory", "1 GB", "2 GB", "less", is_planned=False)
    assert not any(report.failed for report in reports.values())
    return Looked(warnings={host: report.warnings for host, report in reports.items()})


def test_a_warning_is_told_by_kind_and_host_and_a_counter_that_rises_by_its_first_and_last_value() -> None:
    warned = Warned()
    for replays in (4, 4, 100, 7000):
        warned.add(looked(replays).warnings)
    links, clock = warned.records()
    assert clock.kind.startswith("clock: is not synchronised: ") and clock.count == 2 and [*clock.hosts] == ["n0", "n1"]
    assert links.kind.startswith("GPU #: # errors of its NVLinks") and links.count == 1
    words = " errors of its NVLinks since the driver was loaded: reset the host; check NVSwitches and"
    assert [said.partition(words)[0] for said in links.hosts["n0"]] == [
        "GPU 3: 4", "GPU 3: 7000", "GPU 5: 5", "GPU 5: 7001",
    ]  # fmt: skip


def test_warnings_fail_no_rung_and_are_kept_of_the_check_and_of_each_run() -> None:
    cluster = Cluster({})
    cluster.warns = [looked(replays) for replays in (4, 5, 6)]
    found = cluster.climb()
    assert found.ready and set(found.states().values()) == {"accepted"} and found.hosts == HOSTS
    links, _ = found.warned.records()
    assert [said[:8] for said in links.hosts["n0"]] == ["GPU 3: 4", "GPU 3: 6", "GPU 5: 5", "GPU 5: 7"]


def test_what_the_monitors_of_a_run_warn_of_is_told_and_what_was_not_run_is_not() -> None:
    held = PartFinding(
        part="device",
        hosts=("n1",),
        device="accelerator 3",
        kind="device_errors",
        severity="warning",
        evidence="a setting held its clocks in 9 of 9 samples",
        suggested_action="reset",
        sentence="s",
    )
    others: list[dict[str, Any]] = [{"kind": "not_run", "device": "", "hosts": ("n1", "n2")}, {"severity": "fault"}]
    found = [held, *(held.model_copy(update=each) for each in others)]
    cluster = Cluster({})
    cluster.rounds = {"ACCEPT_DEVICES": [a_round([]).model_copy(update={"findings": found})]}
    (told,) = cluster.climb().warned.records()
    assert told.hosts == {"n1": ["accelerator 3: a setting held its clocks in 9 of 9 samples: reset"]}


def test_what_hosts_say_is_bounded() -> None:
    warned = Warned()
    for letter in range(2 * MOST_KINDS):
        kind = "".join(chr(ord("g") + int(digit)) for digit in f"{letter:03}")
        hosts = range(2 * MOST_HOSTS if letter == 0 else 1)
        warned.add({f"n{host + letter}": [(f"GPU {gpu}", kind) for gpu in range(2 * MOST_PARTS)] for host in hosts})
    warned.add({f"n{host}": [("GPU 0", "ggg")] for host in range(2 * MOST_HOSTS)})
    records = warned.records()
    assert len(records) == MOST_KINDS
    assert all(len(said) <= MOST_PARTS for each in records for said in each.hosts.values())
    wide = Warned()
    wide.add({f"n{host}": [("clock", "is late")] for host in range(2 * MOST_HOSTS)})
    (record,) = wide.records()
    assert (record.count, len(record.hosts)) == (2 * MOST_HOSTS, MOST_HOSTS)


def test_a_warning_of_all_hosts_is_kept_beside_hundreds_of_odd_ones_and_what_is_left_out_is_counted() -> None:
    names = [f"{chr(ord('g') + number // 20)}{chr(ord('g') + number % 20)}" for number in range(400)]
    clock, hosts = ("clock", "is not synchronised"), [f"n{number}" for number in range(400)]
    logs = Warned()
    logs.add({host: [("kernel log", f"I/O error on {name}"), clock] for host, name in zip(hosts, names, strict=True)})
    assert [(each.kind, each.count) for each in logs.records()] == [
        ("kernel log", 400),
        ("clock: is not synchronised", 400),
    ]
    assert logs.records()[0].hosts["n1"] == ["kernel log: I/O error on gh"] and logs.left_out == 0
    odd = Warned()
    for _ in range(3):
        odd.add({host: [clock, (f"version of {name}", "")] for host, name in zip(hosts, names, strict=True)})
        odd.add({"n0": [(f"version of {name}", "mine") for name in names]})
    kinds = {each.kind: each.count for each in odd.records()}
    assert kinds["clock: is not synchronised"] == 400 and len(kinds) == MOST_KINDS
    listed = len(odd.records())
    assert odd.left_out == 1 + 2 * 400 - listed, "the clock, a name of each host, and all of the first one"
