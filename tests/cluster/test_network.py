"""Who holds the cluster back, found by the pattern pairs on four real hosts: slow, late or lossy wires and paths."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster.bed import TestBed
from tests.cluster.controller import Answer, Controller
from tests.cluster.pairs import CASE, HEALTHY, SLOW, configure, measure, view_of
from training.benchmarks.network.reporting.view import NetworkView

pytestmark = [pytest.mark.cluster, pytest.mark.alone, pytest.mark.timeout(600)]
DELAY_S, LOSS = 0.005, 0.03


@pytest.fixture
def controller(tmp_path: Path, four_hosts: TestBed) -> Controller:
    return Controller(tmp_path, four_hosts)


def _named(view: NetworkView) -> list[tuple[str, set[str]]]:
    assert view.analysis is not None
    return [(finding.part, set(finding.hosts)) for finding in view.analysis.findings]


def _is_drained(answer: Answer, hosts: list[str]) -> None:
    """The run is degraded, and these are its hosts to take out of service."""
    run, round_ = answer.run_record(), answer.round_record(CASE)
    assert (run["verdict"], round_["verdict"], answer.exit_code) == ("degraded", "degraded", 0)
    assert [each["host"] for each in run["drain"]] == hosts
    assert [each["drained_hosts"] for each in round_["findings"]] == [hosts]
    assert all(f"{host}" in answer.output for host in hosts) and ("Take out of service" in answer.output) == bool(hosts)


@pytest.mark.parametrize(
    ("fault", "symptom", "words"),
    [
        pytest.param({"rate": SLOW}, "bandwidth", "all its pairs are ", id="rate", marks=pytest.mark.nightly),
        pytest.param(
            {"rate": HEALTHY, "delay": DELAY_S},
            "latency",
            "small messages (8) on all its pairs take ",
            id="delay",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            {"rate": HEALTHY, "loss": LOSS},
            "stalls",
            "% of the operations on all its pairs stall (190 ms and more)",
            id="loss",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_bad_host_is_named(
    controller: Controller, four_hosts: TestBed, fault: dict[str, Any], symptom: str, words: str
) -> None:
    victim = four_hosts.hosts[2]
    victim.impair(**fault)
    try:
        # A few operations in a hundred stall: it takes more of them than the other faults.
        answer = measure(controller, {"repeats": 5, "iterations": 40 if "loss" in fault else 20})
    finally:
        victim.impair(rate=HEALTHY)
    view = view_of(answer)
    assert _named(view) == [("host", {victim.address})], view.sentences
    assert view.analysis is not None and symptom in view.analysis.findings[0].symptoms
    assert view.analysis.findings[0].kind == ("stalls" if "loss" in fault else "constant")
    assert view.sentences[0].startswith(f"host {victim.address}: ") and words in view.sentences[0]
    said = answer.round_record(CASE)["metrics"]["answer"]
    assert "host node3: " in said and words in said, "the ranks say so, too, by the host's own name"
    _is_drained(answer, [victim.address])
    (finding,) = answer.round_record(CASE)["findings"]
    seen = [each for each in finding["observations"] if each.startswith("tcp: ") and " retransmits, at most " in each]
    assert "loss" not in fault or len(seen) == 1, "its monitor counted what its peers' did not"
    bad = [cell for cell in view.matrix[2] if cell is not None]
    assert len(bad) == 3 and all(cell.named for cell in bad)


@pytest.mark.parametrize(
    ("fault", "overrides", "symptom"),
    [
        pytest.param({"rate": SLOW}, {}, "bandwidth", id="rate", marks=pytest.mark.nightly),
        # So many operations, and such a bound, that one busy moment of the machine is no finding beside the path's.
        pytest.param(
            {"rate": HEALTHY, "delay": DELAY_S},
            {"sizes": "8, 64K", "iterations": 40, "late_percent": 200.0},
            "latency",
            id="delay",
            marks=pytest.mark.nightly,
        ),
    ],
)
def test_a_bad_path_is_named_and_no_host(
    controller: Controller, four_hosts: TestBed, fault: dict[str, Any], overrides: dict[str, Any], symptom: str
) -> None:
    # Not that of rank 0, which does more than the others.
    one, other = four_hosts.hosts[1], four_hosts.hosts[3]
    one.impair(peer=other, **fault)
    try:
        answer = measure(controller, {"repeats": 5} | overrides)
    finally:
        one.mend(peer=other)
    view = view_of(answer)
    _is_drained(answer, [])
    assert _named(view) == [("link", {one.address, other.address})], view.sentences
    assert view.analysis is not None and symptom in view.analysis.findings[0].symptoms
    assert view.sentences[0].startswith(f"pair {one.address}-{other.address} alone: ")


@pytest.mark.nightly
def test_a_host_of_a_subset_that_falls_below_the_baseline_of_a_good_run_is_named(
    controller: Controller, four_hosts: TestBed, tmp_path: Path
) -> None:
    """Three of the hosts, in an order of their own, are measured and compared under their own names."""
    file, victim = tmp_path / "baseline.json", four_hosts.hosts[1]
    chosen = [four_hosts.hosts[number].address for number in (3, 1, 2)]
    # With as many repeats three hosts suffice to name one: that nobody is named means something.
    configure(controller, {"repeats": 5}, hosts=chosen)
    good = controller.call("--save-baseline", str(file))
    assert good.exit_code == 0 and file.is_file(), good.output
    assert all(sentence.startswith("no host or path stands out") for sentence in view_of(good).sentences)
    again = controller.call("--save-baseline", str(file))
    assert again.exit_code == 2 and "is there; give --force" in again.output
    configure(controller, {"repeats": 5}, hosts=chosen, conf={"BASELINE": str(file), "BASELINE_PERCENT": 50.0})
    victim.impair(rate=SLOW)
    try:
        slow = controller.call("--save-baseline", str(tmp_path / "other.json"))
    finally:
        victim.impair(rate=HEALTHY)
    assert slow.exit_code == 1, slow.output
    case = slow.run_record()["cases"][0]
    assert f"host {victim.address}: all its 2 pairs take" in case["reason"] and "longer at 256K" in case["reason"]
    assert sum(row["below"] for row in case["baseline"]["rows"] if row["what"].endswith(" at 256K")) == 2
    assert slow.folder is not None and "Against the baseline" in (slow.folder / "report.html").read_text()
    assert not (tmp_path / "other.json").exists() and "not written: the run ended with verdict fail" in slow.output
    view = view_of(slow)
    assert view.hosts == tuple(chosen)
    assert _named(view) == [("host", {victim.address})], view.sentences
    assert "bandwidth" in view.analysis.findings[0].symptoms  # type: ignore[union-attr]
    assert [each["host"] for each in slow.run_record()["drain"]] == [victim.address]
    assert [[cell is not None and cell.named for cell in row] for row in view.matrix] == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]
