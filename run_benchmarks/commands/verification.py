"""Runs `run.py verify RUN`: checks offline that a result folder is unchanged since its run.

Every file is hashed and compared with seal.json and the round.json; the ranks' logs are read again, and the numbers and
verdicts of the records must follow from them; all rounds must be of one code and of their case's settings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from protocol.case_file import CASE_FILE
from protocol.perflog import Event
from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.plan.code_bundle import manifest_digest
from run_benchmarks.results.derivation import derive
from run_benchmarks.results.differences import different
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.judge import files_read
from run_benchmarks.results.metrics import Spread, combine
from run_benchmarks.results.rank_logs import RankLog, read_rank_log
from run_benchmarks.results.records import CaseRecord, NodeRecord, RoundRecord, RunRecord, Verdict, worst
from run_benchmarks.results.seal import (
    MANIFEST_FILE,
    ROUND_FILE,
    SEAL_FILE,
    Seal,
    all_files,
    config_digest,
    node_folder,
    sha256,
    unlisted_files,
)
from run_benchmarks.results.standards import numbers_of
from run_benchmarks.settings.limits import parse_limit
from run_benchmarks.state.exit_codes import EXIT_PASS, exit_code
from run_benchmarks.state.run_lock import is_controlled

RUN_FILE = "run.json"
RecordT = TypeVar("RecordT", bound=BaseModel)


class NoRunError(ClusterDynoError):
    """There is no run to verify; the message names the folder."""


@dataclass(kw_only=True)
class Findings:
    """Results of a verification.

    `problems`: differences from the run's results, by file; `files`: number of unchanged files; `seal`: sha256 of
    seal.json.
    """

    problems: list[str] = field(default_factory=list)
    files: int = 0
    seal: str | None = None

    def add(self, name: str, problem: str) -> None:
        """Add a problem of a file."""
        line = f"{name}: {problem}"
        self.problems.append("".join(letter if letter.isprintable() else "?" for letter in line))


def verify(folder: Path) -> Findings:
    """Verify all files of a run's folder.

    Raises:
        NoRunError: the folder holds no run.
    """
    if not (folder / RUN_FILE).is_file() and not (folder / SEAL_FILE).is_file():
        raise NoRunError(f"{folder}: no run.json and no seal.json: not the folder of a completed run")
    findings = Findings()
    known = _check_seal(folder, findings)
    run = _read(folder, RUN_FILE, RunRecord, findings)
    rounds: dict[str, RoundRecord] = {}
    for path in sorted(folder.glob(f"*/round*/{ROUND_FILE}")):
        name = path.relative_to(folder).as_posix()
        record = _read(folder, name, RoundRecord, findings)
        if record is not None:
            rounds[name] = record
            known |= _check_files(folder, name, record, findings)
    for name in all_files(folder):
        if name not in known:
            findings.add(name, "added: neither seal.json nor a round.json lists it")
    for name in unlisted_files(folder):
        findings.add(name, "added: no seal lists a name that is not UTF-8")
    findings.files = len(known)
    if run is not None:
        _check_code(folder, run, findings)
        _check_cases(run, rounds, findings)
        for name, record in rounds.items():
            _check_round(folder, run, name, record, findings)
    return findings


def report(folder: Path, say: Callable[[str], object]) -> bool:
    """Verify a folder and print the findings; returns whether there are any.

    Raises:
        NoRunError: there is no run in the folder, or a controller works on it.
    """
    if is_controlled(folder):
        raise NoRunError(f"{folder}: a controller works on this run; see `{own_command('status', run_word(folder))}`")
    findings = verify(folder)
    for problem in findings.problems:
        say(problem)
    if findings.problems:
        say(f"{folder.name}: CHANGED since its run: {len(findings.problems)} finding(s)")
    else:
        say(f"{folder.name}: intact: {findings.files} files, their records and verdicts; seal {findings.seal}")
    return bool(findings.problems)


def _check_seal(folder: Path, findings: Findings) -> set[str]:
    """Compare the files that seal.json names; returns their names."""
    seal = _read(folder, SEAL_FILE, Seal, findings)
    if seal is None:
        return {RUN_FILE, MANIFEST_FILE}
    findings.seal = sha256(folder / SEAL_FILE)
    for name, digest in seal.files.items():
        _compare(folder, name, digest, findings)
    return set(seal.files)


def _check_files(folder: Path, name: str, record: RoundRecord, findings: Findings) -> set[str]:
    """Compare the collected files of a round; returns their names."""
    names = set()
    for node in record.nodes:
        base = f"{name.removesuffix(ROUND_FILE)}{node_folder(node.host, node.node_rank)}"
        for file, expected in node.files.items():
            names.add(f"{base}/{file}")
            _compare(folder, f"{base}/{file}", expected.sha256, findings)
    return names


def _compare(folder: Path, name: str, digest: str, findings: Findings) -> None:
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or path.is_symlink():
        findings.add(name, "changed: leads out of its place")
        return
    try:
        found = sha256(path)
    except OSError:
        findings.add(name, "missing")
        return
    if found != digest:
        findings.add(name, "changed: its sha256 is not the recorded one")


def _read(folder: Path, name: str, record: type[RecordT], findings: Findings) -> RecordT | None:
    try:
        return record.model_validate_json((folder / name).read_bytes())
    except FileNotFoundError:
        findings.add(name, "missing")
    except (OSError, ValidationError) as error:
        findings.add(name, f"changed: cannot be read as {record.__name__}: {str(error).splitlines()[0]}")
    return None


def _check_code(folder: Path, run: RunRecord, findings: Findings) -> None:
    try:
        digest = manifest_digest((folder / MANIFEST_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        findings.add(MANIFEST_FILE, "missing")
        return
    if digest != run.code_digest:
        findings.add(MANIFEST_FILE, f"lists the code {digest}, run.json is of {run.code_digest}")


def _check_cases(run: RunRecord, rounds: dict[str, RoundRecord], findings: Findings) -> None:
    """Check that run.json's cases follow from their rounds, and its verdict from theirs."""
    for case in run.cases:
        last = _counting(case, rounds)
        if [record.verdict for record in last] != case.rounds:
            recorded, found = (", ".join(each) or "none" for each in (case.rounds, [record.verdict for record in last]))
            findings.add(RUN_FILE, f"case {case.name}: its rounds are {recorded}, on disk {found}")
        if worst([case.verdict, *case.rounds]) is not case.verdict:
            findings.add(RUN_FILE, f"case {case.name}: verdict {case.verdict} does not follow from its rounds")
        _check_expectations(case, findings)
        metrics, spread = _combined(last)
        if changed := different(case.metrics, metrics) or different(_dumped(case.spread), _dumped(spread)):
            findings.add(RUN_FILE, f"case {case.name}: metrics do not follow from its rounds: {changed}")
    if worst([run.verdict, *(case.verdict for case in run.cases)]) is not run.verdict:
        findings.add(RUN_FILE, f"verdict {run.verdict} does not follow from its cases")
    parts = [finding for case in run.cases for record in _counting(case, rounds) for finding in record.findings]
    if (exit_code(run.verdict, parts, run.fail_on) == EXIT_PASS) != (run.exit_code == EXIT_PASS):
        findings.add(RUN_FILE, f"exit code {run.exit_code} does not follow from verdict {run.verdict}")
    if run.drain != drain_list({case.name: _counting(case, rounds) for case in run.cases}):
        findings.add(RUN_FILE, "the hosts to take out of service do not follow from the findings of the rounds")


def _check_expectations(case: CaseRecord, findings: Findings) -> None:
    """Check that measured values are among the metrics, and that a case that passes meets its limits."""
    for expected in case.expectations:
        value = case.metrics.get(expected.metric)
        if expected.measured is not None and expected.measured not in numbers_of(value):
            findings.add(
                RUN_FILE, f"case {case.name}: {expected.metric} is {expected.measured}, its metrics have {value}"
            )
        limit, measured = parse_limit(expected.limit), (expected.measured, *numbers_of(value))
        is_met = not expected.missing_rounds and all(each is not None and limit.holds(each) for each in measured)
        if case.verdict.is_measured and not is_met:
            findings.add(RUN_FILE, f"case {case.name}: verdict {case.verdict}, but {expected.sentence}")


def _combined(rounds: list[RoundRecord]) -> tuple[dict[str, object], dict[str, Spread]]:
    """The combined metrics of the rounds; empty if they cannot be combined."""
    try:
        return combine([record.metrics for record in rounds if record.verdict.is_measured])
    except Exception:  # noqa: BLE001 - as in the run, whose verdict says it
        return {}, {}


def _dumped(spread: dict[str, Spread]) -> dict[str, object]:
    return {name: each.model_dump(mode="json") for name, each in spread.items()}


def _counting(case: CaseRecord, rounds: dict[str, RoundRecord]) -> list[RoundRecord]:
    """The last attempt of each of a case's rounds."""
    last: dict[int, RoundRecord] = {}
    for name, record in rounds.items():
        if name.startswith(f"{case.folder}/") and record.attempt >= getattr(last.get(record.round), "attempt", 0):
            last[record.round] = record
    return [last[index] for index in sorted(last)]


def _check_round(folder: Path, run: RunRecord, name: str, record: RoundRecord, findings: Findings) -> None:
    case = next((case for case in run.cases if case.name == record.case and name.startswith(f"{case.folder}/")), None)
    if case is None or record.run_id != run.run_id:
        findings.add(name, f"of case {record.case} of {record.run_id}, which run.json does not have")
        return
    codes = {record.code_digest, *(node.code_digest for node in record.nodes)} - {None}
    if codes - {run.code_digest}:
        findings.add(name, f"of the code {', '.join(sorted(map(str, codes)))}, run.json is of {run.code_digest}")
    if record.config_sha256 not in (None, config_digest(case.config)):
        findings.add(name, "its case had other settings than run.json has")
    logs = {rank: (node, log) for node in record.nodes for rank, log in _logs(folder, name, node)}
    for rank, (node, log) in logs.items():
        _check_config(f"{_base(name, node)}/rank{rank}.out.log", log, case, record.case_sha256, findings)
    if 0 in logs:
        finished, steps = logs[0][1].value(Event.FINISHED) or {}, logs[0][1].steps
        if changed := different(record.metrics, finished):
            findings.add(name, f"metrics do not follow from the log of rank 0: {changed}")
        if record.data_files != files_read(logs[0][1]):
            findings.add(name, "data_files do not follow from the log of rank 0")
        if record.steps != steps:
            counts = f"{len(record.steps)}, in the log {len(steps)}"
            findings.add(name, f"steps do not follow from the log of rank 0 ({counts})")
    if (record.verdict is Verdict.DEGRADED) != bool(record.findings):
        findings.add(name, f"verdict {record.verdict} does not follow from {len(record.findings)} findings")
    if record.verdict.is_measured:
        for problem in _reasons_to_fail(case, record, {rank: log for rank, (_, log) in logs.items()}):
            findings.add(name, f"verdict {record.verdict} does not follow from the logs: {problem}")


def _logs(folder: Path, name: str, node: NodeRecord) -> Iterator[tuple[int, RankLog]]:
    for rank in node.ranks:
        if (folder / _base(name, node) / f"rank{rank}.out.log").is_file():
            yield rank, read_rank_log(folder / _base(name, node), rank, with_steps=rank == 0)


def _base(name: str, node: NodeRecord) -> str:
    return f"{name.removesuffix(ROUND_FILE)}{node_folder(node.host, node.node_rank)}"


def _check_config(name: str, log: RankLog, case: CaseRecord, case_sha256: str | None, findings: Findings) -> None:
    """Check that the settings that a rank reports are the case's."""
    said = log.value(Event.SUBMIT_INFO) or {}
    submitted = said.get("config")
    asked = {key: value for key, value in case.config.items() if value is not None}  # None: the rank finds a value
    if not isinstance(submitted, dict):
        return
    if case_sha256 is not None and said.get("case_sha256") != case_sha256:
        findings.add(name, f"ran another {CASE_FILE} than its round.json has: {str(said.get('case_sha256'))[:64]}")
    if changed := different({key: value for key, value in submitted.items() if key in asked}, asked):
        findings.add(name, f"ran with other settings than run.json has: {changed}")


def _reasons_to_fail(case: CaseRecord, record: RoundRecord, logs: dict[int, RankLog]) -> Iterator[str]:
    listed = sorted(rank for node in record.nodes for rank in node.ranks)
    if listed != list(range(record.world_size)):
        yield f"its nodes have {len(listed)} ranks, its world size is {record.world_size}"
    for rank in (rank for node in record.nodes for rank in node.ranks):
        if rank not in logs:
            yield f"rank {rank} has no log"
            continue
        finished = logs[rank].value(Event.FINISHED) or {}
        if logs[rank].problems:
            yield f"rank {rank}: {logs[rank].problems[0]}"
        elif finished.get("correct") == "fail" or finished.get("converged") is False:
            yield f"rank {rank} says that it failed"
    if not any(log.problems for log in logs.values()):
        yield from derive(case, logs, is_whole=not any(node.incomplete for node in record.nodes)).contradictions
    yield from (f"{node.host} ended with exit code {node.exit_code}" for node in record.nodes if node.exit_code != 0)
