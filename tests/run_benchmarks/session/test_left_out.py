"""A run goes on without the hosts that failed the check where MIN_HOSTS are left; missing data costs one case."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from container.image import ImageIdentity
from run_benchmarks.errors import InputProblems, LinkLostError, TaskError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.plan.plan import CasePlan, Plan
from run_benchmarks.plan.side_by_side import Wave
from run_benchmarks.results.records import RoundRecord, RunRecord, Verdict
from run_benchmarks.session import part as parts
from run_benchmarks.session import schedule as schedules
from run_benchmarks.session.preparation import prepare
from run_benchmarks.session.run_folder import new_run_id
from run_benchmarks.session.schedule import RoundScheduler
from run_benchmarks.session.session import Session
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import RoundEnded
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.reports import a_report
from tests.run_benchmarks.results.rounds import round_record

CLUSTER = "HOSTS = ['a', 'b', 'c']\n"
TWO_CASES = TEST.replace("['ONE']", "['ONE', 'TWO']").replace('["ONE"]', "['ONE', 'TWO']") + "TWO = dict(ONE)\n"


class Check:
    """In check_hosts' place: sound hosts, but for those that `failed` names and the cases `barred` on a host."""

    def __init__(self, failed: tuple[str, ...], barred: dict[str, str]) -> None:
        self._failed, self._barred = failed, barred

    def __call__(self, hosts: dict[str, Host], *_: Any, **__: Any) -> dict[str, HostReport]:
        reports = {name: a_report(name) for name in hosts}
        for name in self._failed:
            reports[name].add("ssh", "port 22 cannot be reached", "a login", "look")
        for name, case in self._barred.items():
            reports[name].bar(case, "data", "no readable /data", "data", "copy it", is_planned=True)
        return reports


def run(
    tmp_path: Path,
    load: Load,
    monkeypatch: pytest.MonkeyPatch,
    cluster: str,
    *,
    cases: str = "",
    failed: tuple[str, ...] = (),
    barred: dict[str, str] | None = None,
    lost: tuple[str, int] | None = None,
    without_code: tuple[str, ...] = (),
    without_image: tuple[str, ...] = (),
    without_image_later: tuple[str, ...] = (),
) -> tuple[RunRecord, dict[str, tuple[str, ...]]]:
    """The run's record, and the hosts on which each case ran; the attempt `lost` at a case loses its host for good."""
    placed: dict[str, tuple[str, ...]] = {}

    def attempt(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        plan = self._place(case, wave[case.name] if len(wave) > 1 else None)
        placed[case.name] = next(each.hosts for each in plan.cases if each.name == case.name)
        if (is_lost := lost == (case.name, number)) and (host := placed[case.name][0]):
            self._lost[host] = f"{host}: out of reach"
        verdict = Verdict.FAIL if is_lost else Verdict.PASS
        ended = RoundEnded(case=case.name, round=index, attempt=number, verdict=verdict, reason="")
        self._journal.append(ended)
        return round_record(tmp_path / f"{case.name}{number}", case=case.name, verdict=verdict, attempt=number)

    @contextlib.contextmanager
    def connected(*_: object) -> Iterator[dict[str, Host]]:
        yield {name: LocalHost(name) for name in "abc"}

    monkeypatch.setattr(RoundScheduler, "_attempt", attempt)
    monkeypatch.setattr(parts, "connected", connected)

    def bring(host: Host, *_: object, **__: object) -> None:
        if host.name in without_code:
            raise TaskError(host.name, "No space left on device")

    def provide(_: object, plan: Plan, *__: object) -> dict[str, ImageIdentity]:
        lacking = {name: name for name in plan.hosts if name in without_image + without_image_later * bool(placed)}
        for_each(lacking, lambda name: refuse(name)).raise_first()
        return {}

    def refuse(name: str) -> None:
        raise LinkLostError(name, "out of reach")

    monkeypatch.setattr(parts, "bring", bring)
    monkeypatch.setattr(schedules, "provide_images", provide)
    monkeypatch.setattr(parts, "check_hosts", Check(failed, barred or {}))
    text = f"{TWO_CASES}{cases}\nFLAGPERF_PATH_HOST = {str(tmp_path / 'deploy')!r}\n"
    prepared = prepare(load(text, f"{CLUSTER}{cluster}\n"), new_run_id())
    (tmp_path / "result").mkdir()
    with Interruption("clean") as interruption:
        record = Session(prepared, tmp_path / "result", interruption, ["run.py"]).run()
    return record, placed


def test_without_min_hosts_one_host_that_failed_ends_the_run(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, placed = run(tmp_path, load, monkeypatch, "", failed=("a",))
    assert (record.exit_code, record.verdict, placed) == (3, Verdict.SKIPPED, {})
    assert record.left_out == {}


def test_a_spare_host_stands_in_for_one_that_failed_and_who_was_left_out_is_said(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, placed = run(tmp_path, load, monkeypatch, "MIN_HOSTS = 2", cases="ONE['nnodes'] = 2", failed=("a",))
    assert (record.exit_code, record.verdict) == (0, Verdict.PASS)
    assert placed == {"ONE": ("b", "c"), "TWO": ("b",)}
    assert record.left_out == {"a": "a: ssh: port 22 cannot be reached"}
    assert "Left out of this run: a: ssh: port 22 cannot be reached" in (tmp_path / "result/report.html").read_text()


def test_a_case_for_which_too_few_are_left_is_skipped_with_the_reason(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, placed = run(tmp_path, load, monkeypatch, "MIN_HOSTS = 1", cases="ONE['nnodes'] = 3", failed=("c",))
    one, two = record.cases
    assert (record.exit_code, one.verdict, two.verdict, placed) == (1, Verdict.SKIPPED, Verdict.PASS, {"TWO": ("a",)})
    assert "c: ssh: port 22 cannot be reached" in one.reason


@pytest.mark.parametrize("lacks", ["without_code", "without_image"])
def test_hosts_to_which_code_or_image_cannot_be_brought_are_left_out_as_the_check_s_are(
    lacks: str, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = {"without_code": "No space left on device", "without_image": "out of reach"}[lacks]
    broken: dict[str, Any] = {lacks: ("a", "b")}
    record, placed = run(tmp_path, load, monkeypatch, "MIN_HOSTS = 1", **broken)
    assert (record.exit_code, placed) == (0, {"ONE": ("c",), "TWO": ("c",)})
    assert record.left_out == {name: f"{name}: {why}" for name in "ab"}


@pytest.mark.parametrize("lacks", ["without_code", "without_image"])
@pytest.mark.parametrize(("least", "said"), [("", "a: "), ("MIN_HOSTS = 2", "MIN_HOSTS is 2")])
def test_a_host_without_code_or_image_ends_a_run_that_may_not_go_on_without_it(
    lacks: str, least: str, said: str, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken: dict[str, Any] = {lacks: ("a",), "failed": ("b",) if least else ()}
    record, placed = run(tmp_path, load, monkeypatch, least, **broken)
    assert placed == {} and record.exit_code != 0 and said in record.cases[0].reason
    assert record.left_out == ({"b": "b: ssh: port 22 cannot be reached"} if least else {})


@pytest.mark.parametrize("side_by_side", ["", "MAX_PARALLEL_CASES = 2\n"], ids=["alone", "in waves"])
def test_a_host_that_gets_no_image_for_a_later_round_is_left_out_and_the_record_says_so(
    side_by_side: str, tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of host a makes another plan, whose images are brought anew."""
    monkeypatch.setattr(schedules, "answers", lambda host: False)
    cases = f"{side_by_side}ONE['nnodes'] = 3\nONE['retries'] = 1"
    record, placed = run(
        tmp_path, load, monkeypatch, "MIN_HOSTS = 1", cases=cases, lost=("ONE", 1), without_image_later=("b",)
    )
    assert placed == {"ONE": ("a", "b", "c"), "TWO": ("c",)}
    assert record.cases[1].verdict is Verdict.PASS and record.left_out == {"b": "b: out of reach"}
    assert {host.name: host.state for host in record.hosts}["b"] == "lost"


def test_fewer_than_min_hosts_end_the_run(tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    record, placed = run(tmp_path, load, monkeypatch, "MIN_HOSTS = 2", failed=("a", "c"))
    assert (record.exit_code, placed) == (3, {})
    assert "1 passed, MIN_HOSTS is 2" in record.cases[0].reason


@pytest.mark.parametrize("least", ["0", "4", "True", "'all'"])
def test_min_hosts_is_a_number_of_hosts(least: str, load: Load) -> None:
    with pytest.raises(InputProblems, match="MIN_HOSTS"):
        load(TEST, f"{CLUSTER}MIN_HOSTS = {least}\n")


def test_a_host_without_the_data_of_one_case_is_used_for_the_others(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, placed = run(tmp_path, load, monkeypatch, "", barred={"a": "ONE"})
    assert (record.exit_code, placed) == (0, {"ONE": ("b",), "TWO": ("a",)})


def test_a_case_that_loses_its_host_beside_another_takes_a_spare_one_once_it_is_alone(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which host that is does not depend on when the other case ends."""
    monkeypatch.setattr(schedules, "answers", lambda host: False)
    cases = "MAX_PARALLEL_CASES = 2\nTWO['retries'] = 1"
    record, placed = run(tmp_path, load, monkeypatch, "", cases=cases, lost=("TWO", 1))
    assert (record.exit_code, placed) == (0, {"ONE": ("a",), "TWO": ("c",)})
    two = record.cases[1]
    assert (two.attempts, [each.verdict for each in two.earlier_attempts]) == ([2], [None])


def test_missing_data_skips_its_case_alone_and_names_host_and_folder(
    tmp_path: Path, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the real check of this machine; the round of the other case is not made."""

    def attempt(self: RoundScheduler, case: CasePlan, index: int, number: int, wave: Wave) -> RoundRecord:
        self._place(case)
        return round_record(tmp_path / case.name, case=case.name)

    monkeypatch.setattr(RoundScheduler, "_attempt", attempt)
    folders = {"FLAGPERF_PATH_HOST": str(tmp_path / "deploy"), "FLAGPERF_LOG_PATH_HOST": str(tmp_path / "logs")}
    missing = str(tmp_path / "no data")
    text = f"{TWO_CASES}ONE.update(data_dir_host={missing!r}, data_dir_container='/data')\n"
    text += "".join(f"{key} = {value!r}\n" for key, value in folders.items())
    (tmp_path / "result").mkdir()
    with Interruption("clean") as interruption:
        record = Session(prepare(load(text), new_run_id()), tmp_path / "result", interruption, ["run.py"]).run()
    one, two = record.cases
    assert (one.verdict, two.verdict, record.exit_code) == (Verdict.SKIPPED, Verdict.PASS, 1)
    assert f"localhost: data: no readable {missing}" in one.reason
