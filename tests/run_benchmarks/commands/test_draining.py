"""The drain list reaches a scheduler as commands that a shell reads as they are meant."""

import shlex
from pathlib import Path

import pytest

from run_benchmarks.commands.draining import MAX_REASON, commands, drain_list, reason_of
from run_benchmarks.errors import InputProblems
from run_benchmarks.results.records import DrainRecord

RUN = "run20261125160000"
BAD = DrainRecord(host="gpu7", reasons=["net round 1: gpu7 is slow; 3|4 of it's pairs", "$(touch /tmp/x)\nnext"])


def test_a_line_for_slurm_and_one_for_kubernetes_carry_the_evidence_whole() -> None:
    slurm, kubernetes = commands([BAD], RUN)
    assert shlex.split(slurm) == [
        "scontrol",
        "update",
        "nodename=gpu7",
        "state=drain",
        f"reason=clusterdyno {RUN}: net round 1: gpu7 is slow; 3|4 of it's pairs; $(touch /tmp/x) next",
    ]
    assert shlex.split(kubernetes)[:3] == ["kubectl", "cordon", "gpu7"]
    assert shlex.split(kubernetes)[-1] == f"clusterdyno/drained={reason_of(BAD, RUN)}"


def test_a_reason_fits_and_still_names_its_run() -> None:
    words = reason_of(DrainRecord(host="a", reasons=["x" * 1000]), RUN)
    assert len(words) == MAX_REASON and words.startswith(f"clusterdyno {RUN}: x")


@pytest.mark.parametrize("host", ["ALL", "all", "gpu[1-9]", "a,b", "-x", "a b"])
def test_a_record_that_names_several_nodes_drains_none(
    host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = type("Record", (), {"drain": [BAD, DrainRecord(host=host, reasons=[])]})
    monkeypatch.setattr("run_benchmarks.commands.draining.load_record", lambda _file, _kind: record)
    with pytest.raises(InputProblems, match="the name of one node"):
        drain_list(tmp_path)
