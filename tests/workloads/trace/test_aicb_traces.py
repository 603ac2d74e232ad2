"""Tests the recorded traces, the oracle of the rule-based dialect: complete, valid and the matrix that they claim."""

import json
import lzma
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.workloads import trace_matrix
from workloads.job.errors import WorkloadFileError
from workloads.rows.calls import POINT_TO_POINT
from workloads.trace.record import Trace, load, save

NAMES = tuple(trace_matrix.MATRICES)


@cache
def recorded(name: str) -> list[Trace]:
    return list(load(trace_matrix.FOLDER / f"{name}.jsonl.xz"))


@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_jobs_are_those_of_the_matrix(name: str) -> None:
    assert [trace.job for trace in recorded(name)] == trace_matrix.covering(name)


@pytest.mark.parametrize("name", NAMES)
def test_recorded_ops_are_valid(name: str) -> None:
    for trace in recorded(name):
        ops = trace.ops
        assert [problem for op in ops for problem in op.problems()] == []
        assert all(trace.job.rank in op.ranks for op in ops if not op.kernel)
        assert all(op.peer != trace.job.rank and op.peer in op.ranks for op in ops if op.comm_type in POINT_TO_POINT)
        assert len(trace.iterations) == trace.job.iterations + 1


def test_every_micro_batch_of_a_middle_stage_passes_its_tensors_on() -> None:
    middle = [trace for trace in recorded("megatron") if 0 < trace.job.pp_stage < trace.job.pipeline_model_parallel - 1]
    assert middle
    for trace in middle:
        job = trace.job
        passed = Counter((op.comm_type.name, op.phase) for op in trace.iterations[1] if op.comm_type in POINT_TO_POINT)
        times = job.num_microbatches * job.virtual_pipeline
        assert passed == {(kind, way): times for kind in ("isend", "irecv") for way in ("forward", "backward")}


def test_a_trace_is_saved_and_loaded_as_it_is(tmp_path: Path) -> None:
    traces = recorded("megatron")[:3]
    save(traces, tmp_path / "copy.jsonl.xz")
    assert list(load(tmp_path / "copy.jsonl.xz")) == traces


def test_a_broken_recording_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "broken.jsonl.xz"
    path.write_bytes(b"no xz")
    with pytest.raises(WorkloadFileError, match=r"broken\.jsonl\.xz"):
        list(load(path))
    save([], path)
    assert list(load(path)) == []


@pytest.mark.parametrize("wait", [0, -1])
def test_a_wait_that_is_not_after_its_call_is_refused(wait: int, tmp_path: Path) -> None:
    record = json.loads(recorded("megatron")[0].to_line())
    cells = next(each for each in record["iterations"][1] if len(each) > 5)
    cells[5] = wait
    path = tmp_path / "broken.jsonl.xz"
    path.write_bytes(lzma.compress(json.dumps(record).encode()))
    with pytest.raises(WorkloadFileError, match=f"wait is {wait}, not after the call"):
        list(load(path))
