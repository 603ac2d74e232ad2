"""What the judge finds of a round's logs, and what its nodes complained of, stand in round.json."""

from pathlib import Path

import pytest

from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.records import CollectedFile, RoundRecord, Verdict
from run_benchmarks.rounds.recording import RoundFacts, write_round
from run_benchmarks.session.preparation import prepare
from run_benchmarks.state.context import RunningNode
from tests.run_benchmarks.conftest import TEST, Load
from tests.run_benchmarks.results.rounds import perflog
from tests.run_benchmarks.rounds.contexts import context

SECRET = "hf_0123456789"


@pytest.fixture
def record(load: Load, tmp_path: Path) -> RoundRecord:
    """Of a round on this machine whose second rank's log was cut off in its last line; written and read again."""
    prepared = prepare(load(TEST), "run20261121191924")
    plan = prepared.plan
    own = context(prepared, tmp_path)
    node_plan = plan.cases[0].rounds[0].nodes[0]
    workload = node_plan.workload.model_copy(update={"environment": {"HF_TOKEN": SECRET}})
    node = RunningNode(
        plan=node_plan.model_copy(update={"workload": workload}),
        host=LocalHost("localhost"),
        outcome=NodeOutcome(node=node_plan, folder=tmp_path, exit_code=0),
    )
    node.warnings.append("localhost: monitor: no meter")
    node.outcome.files = {"rank0.out.log": CollectedFile(size=3, sha256="d")}
    node.outcome.left_behind, node.outcome.incomplete = ("cpu_monitor.log",), True
    (tmp_path / "rank0.out.log").write_text(perflog(0, {"correct": "pass"}))
    (tmp_path / "rank1.out.log").write_text(perflog(1, {"correct": "pass"}) + '[PerfLog] {"event": "STEP')
    facts = RoundFacts(
        index=1, attempt=2, started_ms=5, phase_seconds={"run": 1.0}, master_port=29500, ended_early=None
    )
    write_round(tmp_path / "round.json", own, plan.cases[0], [node], facts)
    return RoundRecord.model_validate_json((tmp_path / "round.json").read_bytes())


def test_the_judge_s_warnings_and_the_nodes_stand_in_the_record(record: RoundRecord) -> None:
    assert record.warnings[0] == "localhost: monitor: no meter"
    assert record.warnings[1] == "the log of rank 0 was cut: its FINISHED is not derived from it"
    assert record.warnings[2].startswith('rank 1: PerfLog: the last line is cut off: \'[PerfLog] {"event": "STEP\'')
    assert len(record.warnings) == 3 and (record.attempt, record.round, record.master_port) == (2, 1, 29500)
    node = record.nodes[0]
    assert node.incomplete and "cpu_monitor.log" in node.missing and "rank0.out.log" not in node.missing
    assert node.files["rank0.out.log"].size == 3
    assert SECRET not in record.model_dump_json() and node.environment == {"HF_TOKEN": "***"}
    assert record.verdict is Verdict.FAIL and "not collected" in record.reason
