"""The pattern pairs on four real hosts whose wires are held to a speed, through run.py: what its tests share.

The speed is far below what CPU and bridge reach, so that other work on the machine hardly shows.
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from run_benchmarks.results.outcomes import measured_case, measured_round
from run_benchmarks.results.records import CaseRecord, RoundRecord
from tests.cluster.bed import TestBed
from tests.cluster.controller import PROCESS, Answer, Controller
from training.benchmarks.network.reporting.view import NetworkView, network_view

HEALTHY, SLOW = "200mbit", "80mbit"
CASE = "PAIRS"
HOSTS, REPEATS = 4, 3
# Beside the default of 50: four hosts share the machine's cores, and rank 0's also passes on what was measured. Small
# messages of its pairs then take up to 1.8 times as long as those of others, for the 10 ms that 20 of them last.
LATE_PERCENT = 100.0


@contextmanager
def four_healthy_hosts(folder: Path) -> Iterator[TestBed]:
    """A bed whose hosts send at one speed."""
    with TestBed(HOSTS, folder, engine=False) as bed:
        for host in bed.hosts:
            host.impair(rate=HEALTHY)
        yield bed


def configure(
    controller: Controller,
    overrides: Mapping[str, object] | None = None,
    *,
    rounds: int = 1,
    hosts: Sequence[str] | None = None,
    conf: Mapping[str, object] | None = None,
) -> None:
    """Write test_conf.py: one case with these overrides, on `hosts` alone if given, and other settings in `conf`."""
    settings: dict[str, object] = {
        "pattern": "pairs",
        "repeats": REPEATS,
        "sizes": "8, 256K",
        "iterations": 20,
        "warmup_iterations": 1,
        "late_percent": LATE_PERCENT,
    }
    where = {"nnodes": HOSTS} if hosts is None else {"hosts": list(hosts), "nnodes": len(hosts)}
    case = {**where, "nproc": 1, "repeat": rounds, "overrides": settings | dict(overrides or {})}
    # A bad host or link is what most tests look for: it degrades the run, and does not make it fail.
    controller.configure_test({CASE: case}, **(PROCESS | {"FAIL_ON": []} | dict(conf or {})))


def measure(
    controller: Controller,
    overrides: Mapping[str, object] | None = None,
    *,
    rounds: int = 1,
    hosts: Sequence[str] | None = None,
) -> Answer:
    """Run a case that passes, or is degraded by what it finds."""
    configure(controller, overrides, rounds=rounds, hosts=hosts)
    answer = controller.call()
    assert answer.exit_code == 0, answer.output
    return answer


def view_of(answer: Answer, index: int = 1) -> NetworkView:
    """What the report shows of a round."""
    case = CaseRecord.model_validate(answer.run_record()["cases"][0])
    measured = measured_round(RoundRecord.model_validate(answer.round_record(CASE, index)))
    view = network_view(measured_case(case), measured)
    assert view is not None and view.analysis is not None
    assert answer.folder is not None
    report = html.unescape((answer.folder / "report.html").read_text())
    assert all(sentence in report for sentence in view.sentences)
    return view
