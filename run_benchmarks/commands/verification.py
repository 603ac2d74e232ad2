"""Runs `run.py verify RUN`: checks offline that a result folder is unchanged since its run.

Every file is hashed and compared with seal.json and the round.json; the ranks' logs are read again, and the numbers and
verdicts of the records must follow from them; all rounds must be of one code and of their case's settings.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from common.reading import read_bounded, sha256_of
from run_benchmarks.commands.round_verification import Findings, check_round
from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.console import say
from run_benchmarks.console.language import words
from run_benchmarks.errors import ClusterDynoError
from run_benchmarks.plan.code_bundle import manifest_digest
from run_benchmarks.results.differences import different
from run_benchmarks.results.drain import drain_list
from run_benchmarks.results.key_figure import energy_of
from run_benchmarks.results.metrics import Spread, combine
from run_benchmarks.results.records import (
    MAX_RECORD_BYTES,
    CaseRecord,
    RecordT,
    RoundRecord,
    RunRecord,
    load_record,
    worst,
)
from run_benchmarks.results.seal import (
    MANIFEST_FILE,
    ROUND_FILE,
    SEAL_FILE,
    SIGNATURE_FILE,
    Seal,
    all_files,
    node_folder,
    unlisted_files,
)
from run_benchmarks.results.signature import SignatureError, signer_of
from run_benchmarks.results.standards import numbers_of
from run_benchmarks.settings.limits import parse_limit
from run_benchmarks.state.exit_codes import EXIT_PASS, exit_code
from run_benchmarks.state.journal import JOURNAL_FILE, Journal, JournalError
from run_benchmarks.state.run_lock import is_controlled

RUN_FILE = "run.json"
SHOWN_CHARACTERS = 200


class NoRunError(ClusterDynoError):
    """There is no run to verify; the message names the folder."""

    ends_with = 2


def verify(folder: Path, signers: Path | None = None) -> Findings:
    """Verify all files of a run's folder.

    Args:
        signers: the file of those who may have signed its seal; None: a signature may be anybody's, or missing.

    Raises:
        NoRunError: the folder holds no run.
    """
    if not (folder / RUN_FILE).is_file() and not (folder / SEAL_FILE).is_file():
        raise NoRunError(f"{folder}: no run.json and no seal.json: not the folder of a completed run")
    findings = Findings()
    known = _check_seal(folder, signers, findings)
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
        _checked(findings, MANIFEST_FILE, lambda: _check_code(folder, run, findings))
        _checked(findings, JOURNAL_FILE, lambda: _check_journal(folder, run, rounds, findings))
        _checked(findings, RUN_FILE, lambda: _check_cases(run, rounds, findings))
        for name, record in rounds.items():
            _checked(findings, name, partial(check_round, folder, run, name, record, findings))
    return findings


def _checked(findings: Findings, name: str, check: Callable[[], None]) -> None:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - a record of somebody else may hold anything
        findings.add(name, f"changed: cannot be checked: {type(error).__name__}: {str(error)[:SHOWN_CHARACTERS]}")


def verified(folder: Path, signers: Path | None = None) -> Findings:
    """As `verify`, for a run that has ended.

    Raises:
        NoRunError: there is no run in the folder, or a controller works on it.
    """
    if is_controlled(folder):
        raise NoRunError(f"{folder}: a controller works on this run; see `{own_command('status', run_word(folder))}`")
    return verify(folder, signers)


def show(folder: Path, findings: Findings) -> None:
    """Print the findings on a run's folder, or that it is intact and who signed it."""
    for problem in findings.problems:
        say(problem)
    if findings.problems:
        say(words("{run}: CHANGED since its run: {n} finding(s)", run=folder.name, n=len(findings.problems)))
    else:
        say(
            words(
                "{run}: intact: {n} files, their records and verdicts; seal {seal}",
                run=folder.name,
                n=findings.files,
                seal=findings.seal,
            )
        )
        say(f"{folder.name}: {findings.signer or words('not signed')}")


def _check_seal(folder: Path, signers: Path | None, findings: Findings) -> set[str]:
    """Compare the files that seal.json names, and check its signature; returns their names."""
    seal = _read(folder, SEAL_FILE, Seal, findings)
    try:
        findings.signer = signer_of(folder, signers) if seal is not None else ""
    except SignatureError as error:
        findings.add(SIGNATURE_FILE, str(error))
    if seal is None:
        return {RUN_FILE, MANIFEST_FILE}
    findings.seal = sha256_of(folder / SEAL_FILE)
    if folder.resolve().name != seal.run_id:
        findings.add(SEAL_FILE, f"of {seal.run_id}: the folder has another name")
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
    try:
        if path.is_symlink() or not path.resolve().is_relative_to(folder.resolve()):
            findings.add(name, "changed: leads out of its place")
            return
        found = sha256_of(path)
    except (OSError, RuntimeError, ValueError):  # a link to itself, and a name that no file can have, too
        findings.add(name, "missing")
        return
    if found != digest:
        findings.add(name, "changed: its sha256 is not the recorded one")


def _read(folder: Path, name: str, record: type[RecordT], findings: Findings) -> RecordT | None:
    try:
        return load_record(folder / name, record)
    except FileNotFoundError:
        findings.add(name, "missing")
    except (OSError, ValidationError) as error:
        findings.add(name, f"changed: cannot be read as {record.__name__}: {str(error).splitlines()[0]}")
    return None


def _check_code(folder: Path, run: RunRecord, findings: Findings) -> None:
    try:
        digest = manifest_digest(read_bounded(folder / MANIFEST_FILE, MAX_RECORD_BYTES).decode("utf-8"))
    except (OSError, ValueError):
        findings.add(MANIFEST_FILE, "missing")
        return
    if digest != run.code_digest:
        findings.add(MANIFEST_FILE, f"lists the code {digest}, run.json is of {run.code_digest}")


def _check_journal(folder: Path, run: RunRecord, rounds: dict[str, RoundRecord], findings: Findings) -> None:
    """Check run.json and the rounds against the journal: the same run, cases that began, and verdicts of rounds."""
    try:
        past = Journal(folder).read()
    except JournalError as error:
        findings.add(JOURNAL_FILE, f"cannot be read: {error}")
        return
    names = {case.name for case in run.cases}
    planned = past.started.rounds
    if (past.started.run_id, set(planned)) != (run.run_id, names):
        began = f"{past.started.run_id} with {', '.join(planned)}"
        findings.add(RUN_FILE, f"is {run.run_id} with {', '.join(sorted(names))}, the journal began {began}")
    for case in run.cases:
        if case.verdict.is_measured and len(case.rounds) != planned.get(case.name):
            findings.add(RUN_FILE, f"case {case.name}: {len(case.rounds)} of {planned.get(case.name)} planned rounds")
        for record in _counting(case, rounds):
            ended = past.ended.get((case.name, record.round))
            if ended is None or (ended.attempt, ended.verdict) != (record.attempt, record.verdict):
                now = f"verdict {record.verdict} in attempt {record.attempt}"
                then = "none" if ended is None else f"{ended.verdict} in attempt {ended.attempt}"
                findings.add(RUN_FILE, f"case {case.name}: round {record.round}: {now}, in the journal {then}")


def _check_cases(run: RunRecord, rounds: dict[str, RoundRecord], findings: Findings) -> None:
    """Check that run.json's cases follow from their rounds, and its verdict from theirs."""
    for case in run.cases:
        _check_case(case, _counting(case, rounds), findings)
    if worst([run.verdict, *(case.verdict for case in run.cases)]) is not run.verdict:
        findings.add(RUN_FILE, f"verdict {run.verdict} does not follow from its cases")
    parts = [finding for case in run.cases for record in _counting(case, rounds) for finding in record.findings]
    if (exit_code(run.verdict, parts, run.fail_on) == EXIT_PASS) != (run.exit_code == EXIT_PASS):
        findings.add(RUN_FILE, f"exit code {run.exit_code} does not follow from verdict {run.verdict}")
    drained = drain_list({case.name: _counting(case, rounds) for case in run.cases})
    for recorded, found in zip(run.drain, drained, strict=False):
        if not recorded.evidence:  # a record of before
            found.evidence = []
    if run.drain != drained:
        findings.add(RUN_FILE, "the hosts to take out of service do not follow from the findings of the rounds")


def _check_case(case: CaseRecord, last: list[RoundRecord], findings: Findings) -> None:
    """Check that a case follows from `last`, the last attempt of each of its rounds."""
    verdicts = [record.verdict for record in last]
    if verdicts != case.rounds:
        recorded, found = (", ".join(each) or "none" for each in (case.rounds, verdicts))
        findings.add(RUN_FILE, f"case {case.name}: its rounds are {recorded}, on disk {found}")
    if worst([case.verdict, *case.rounds]) is not case.verdict:
        findings.add(RUN_FILE, f"case {case.name}: verdict {case.verdict} does not follow from its rounds")
    _check_expectations(case, findings)
    measured = [record for record in last if record.verdict.is_measured]
    if not _key_follows(case, measured):
        findings.add(RUN_FILE, f"case {case.name}: its key figure does not follow from its rounds")
    if case.joules and case.joules != energy_of(measured):
        findings.add(RUN_FILE, f"case {case.name}: its joules do not follow from its rounds")
    metrics, spread = _combined(last)
    if changed := different(case.metrics, metrics) or different(_dumped(case.spread), _dumped(spread)):
        findings.add(RUN_FILE, f"case {case.name}: metrics do not follow from its rounds: {changed}")


def _key_follows(case: CaseRecord, measured: list[RoundRecord]) -> bool:
    """Whether the key figure, if there is one, is that of the metrics and of the rounds."""
    if case.key is None:
        return True
    name = case.key.metric
    of_rounds = [value for each in measured for value in numbers_of(each.metrics.get(name))]
    return [case.key.value] == numbers_of(case.metrics.get(name)) and case.key.of_rounds == of_rounds


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
