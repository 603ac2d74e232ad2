"""Checks that a round's record follows from the logs of its ranks, for `run.py verify`."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from protocol.case_file import CASE_FILE
from protocol.perflog import Event
from protocol.rank_states import NodeRanks
from run_benchmarks.plan.plan import round_folder
from run_benchmarks.results.derivation import derive
from run_benchmarks.results.differences import different
from run_benchmarks.results.judge import files_read
from run_benchmarks.results.rank_logs import RankLog, rank_log_name, read_rank_log
from run_benchmarks.results.records import CaseRecord, NodeRecord, RoundRecord, RunRecord, Verdict
from run_benchmarks.results.seal import ROUND_FILE, config_digest, node_folder


@dataclass(kw_only=True)
class Findings:
    """Results of a verification.

    `problems`: differences from the run's results, by file; `files`: number of unchanged files; `seal`: sha256 of
    seal.json; `signer`: who signed it, in words.
    """

    problems: list[str] = field(default_factory=list)
    files: int = 0
    seal: str | None = None
    signer: str = ""

    def add(self, name: str, problem: str) -> None:
        """Add a problem of a file."""
        line = f"{name}: {problem}"
        self.problems.append("".join(letter if letter.isprintable() else "?" for letter in line))


def check_round(folder: Path, run: RunRecord, name: str, record: RoundRecord, findings: Findings) -> None:
    """Check that a round belongs to its run, and that what its record says follows from the logs of its ranks."""
    case = next((case for case in run.cases if case.name == record.case and name.startswith(f"{case.folder}/")), None)
    if case is None or record.run_id != run.run_id:
        findings.add(name, f"of case {record.case} of {record.run_id}, which run.json does not have")
        return
    place = f"{case.folder}/{round_folder(record.round, record.attempt)}/{ROUND_FILE}"
    if name != place:
        findings.add(name, f"of another place: {place}")
    _check_code(run, name, record, findings)
    if record.config_sha256 not in (None, config_digest(case.config)):
        findings.add(name, "its case had other settings than run.json has")
    logs: dict[int, RankLog] = {}
    for node in record.nodes:
        for rank, log in _logs(folder, name, node):
            logs[rank] = log
            _check_config(f"{_base(name, node)}/{rank_log_name(rank)}", log, case, record.case_sha256, findings)
    if 0 in logs:
        _check_measurements(name, record, logs[0], findings)
    _check_verdict(folder, case, name, record, logs, findings)


def _check_verdict(
    folder: Path, case: CaseRecord, name: str, record: RoundRecord, logs: dict[int, RankLog], findings: Findings
) -> None:
    """Check that a verdict follows from the findings of the record, and that nothing speaks against a good one."""
    judged = record.verdict in (Verdict.PASS, Verdict.DEGRADED)
    if judged and (record.verdict is Verdict.DEGRADED) != bool(record.findings):
        findings.add(name, f"verdict {record.verdict} does not follow from {len(record.findings)} findings")
    if record.verdict.is_measured:
        launchers = [NodeRanks.found(folder / _base(name, node)) for node in record.nodes]
        for problem in _reasons_to_fail(case, record, logs, launchers):
            findings.add(name, f"verdict {record.verdict} does not follow from the logs: {problem}")


def _check_measurements(name: str, record: RoundRecord, rank0: RankLog, findings: Findings) -> None:
    """Check that the record has the metrics, the data files and the steps that rank 0 logged."""
    if changed := different(record.metrics, rank0.value(Event.FINISHED) or {}):
        findings.add(name, f"metrics do not follow from the log of rank 0: {changed}")
    if record.data_files != files_read(rank0):
        findings.add(name, "data_files do not follow from the log of rank 0")
    if record.steps != rank0.steps:
        counts = f"{len(record.steps)}, in the log {len(rank0.steps)}"
        findings.add(name, f"steps do not follow from the log of rank 0 ({counts})")


def _check_code(run: RunRecord, name: str, record: RoundRecord, findings: Findings) -> None:
    codes = {record.code_digest, *(node.code_digest for node in record.nodes)} - {None}
    if codes - {run.code_digest}:
        findings.add(name, f"of the code {', '.join(sorted(map(str, codes)))}, run.json is of {run.code_digest}")
    unknown = [node.host for node in record.nodes if node.code_digest is None]
    if unknown and record.verdict.is_measured and record.code_digest is not None:
        findings.add(name, f"verdict {record.verdict}, but the code that ran on {', '.join(unknown)} is unknown")


def _logs(folder: Path, name: str, node: NodeRecord) -> Iterator[tuple[int, RankLog]]:
    for rank in node.ranks:
        log = rank_log_name(rank)
        if (folder / _base(name, node) / log).is_file():
            yield rank, read_rank_log(folder / _base(name, node), rank, with_steps=rank == 0, is_cut=log in node.cut)


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


def _failure_of(rank: int, log: RankLog | None) -> str | None:
    """Why a rank's log makes its round fail."""
    if log is None:
        return f"rank {rank} has no log"
    finished = log.value(Event.FINISHED) or {}
    if log.problems:
        return f"rank {rank}: {log.problems[0]}"
    if finished.get("correct") == "fail" or finished.get("converged") is False:
        return f"rank {rank} says that it failed"
    return None


def _reasons_to_fail(
    case: CaseRecord, record: RoundRecord, logs: dict[int, RankLog], launchers: list[NodeRanks | None]
) -> Iterator[str]:
    listed = [rank for node in record.nodes for rank in node.ranks]
    if len(listed) != record.world_size or sorted(listed) != list(range(len(listed))):
        yield f"its nodes have {len(listed)} ranks, its world size is {record.world_size}"
    yield from filter(None, (_failure_of(rank, logs.get(rank)) for rank in listed))
    if not any(log.problems or log.is_cut for log in logs.values()):
        is_whole = not any(node.incomplete for node in record.nodes)
        yield from derive(case, logs, is_whole=is_whole, launchers=launchers).contradictions
    yield from (f"{node.host} ended with exit code {node.exit_code}" for node in record.nodes if node.exit_code != 0)
