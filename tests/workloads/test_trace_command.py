"""Tests the command `trace` without any framework: options, refusals, versions and the check of unknown ones."""

import subprocess
import sys
import time
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from common.errors import SimulationError
from workloads import cli
from workloads.formats.workload import Workload
from workloads.job import refusals
from workloads.trace import checks, command
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace, load

Said = pytest.CaptureFixture[str]


@pytest.fixture
def recorded() -> Trace:
    return next(trace for trace in load(command.SELF_CHECK) if trace.job.frame == "Megatron")


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    installed = {package: version for known in command.KNOWN.values() for package, version in known.items()}

    def version(package: str) -> str:
        if package not in installed:
            raise metadata.PackageNotFoundError(package)
        return installed[package]

    monkeypatch.setattr(metadata, "version", version)
    return installed


def test_without_the_extra_the_command_names_the_line_that_installs_it(
    versions: dict[str, str], tmp_path: Path, capsys: Said
) -> None:
    del versions["megatron-core"]
    assert cli.main(["trace", "--world_size", "8", "--output", str(tmp_path / "x.csv")]) == 1
    said = capsys.readouterr().err
    assert "megatron-core 0.16.1" in said and command.INSTALL in said
    assert not list(tmp_path.iterdir())


def test_all_mistakes_are_named_at_once_and_nothing_is_written(tmp_path: Path, capsys: Said) -> None:
    words = "--world_size 8 --pp 3 --context_parallel_size 2 --seq_length 6 --num_experts 8 --moe_token_dispatcher flex"
    assert cli.main(["trace", *words.split(), "--routing", "odd", "--output", str(tmp_path / "x.csv")]) == 2
    said = capsys.readouterr().err
    for part in (
        "seq_length 6 must be a multiple of 4",
        refusals.dispatcher("flex"),
        "tp * pp * cp = 6",
        "routing 'odd'",
    ):
        assert part in said
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"world_size": 0}, "at least 1"),
        ({"rank": 1}, "rank 1"),
        ({"virtual_pipeline": 2}, "more than one pipeline stage"),
        ({"enable_sequence_parallel": True}, "needs tensor_model_parallel_size"),
        ({"expert_model_parallel_size": 2}, "needs num_experts"),
        ({"overlap_param_gather": True}, "use_distributed_optimizer"),
        ({"recompute": "some"}, "none, selective, full"),
        ({"frame": "FSDP2", "pipeline_model_parallel": 2, "world_size": 2}, "data parallelism alone"),
        ({"frame": "FSDP2", "tensor_model_parallel_size": 2, "world_size": 4}, "needs fsdp_units torchtitan"),
        ({"frame": "DeepSpeed", "stage": 0}, "the stages 1, 2 and 3"),
        ({"frame": "FSDP2", "replicate": 2}, "no multiple of replicate"),
        ({"frame": "DeepSpeed", "sub_group_size": 0}, "sub_group_size is 0; it must be at least 1"),
        ({"dtype": "float16"}, "dtype float16 is traced with frame DeepSpeed alone"),
        ({"kv_channels": 0}, "kv_channels is 0; it is at least 1"),
        ({"world_size": 10**20}, "world_size is 100000000000000000000; it is at most 16777216"),
        ({"num_layers": 10**9}, "num_layers is 1000000000; it is at most 100000"),
        ({"clip_grad": float("nan")}, "clip_grad is nan; it is 0"),
        ({"clip_grad": -1.0}, "clip_grad is -1.0; it is 0"),
    ],
)
def test_what_cannot_be_traced_is_refused(changes: dict[str, object], part: str) -> None:
    assert any(part in problem for problem in checks.problems(TraceJob.from_dict(changes)))
    assert checks.problems(TraceJob()) == []


def test_options_of_generate_become_a_job() -> None:
    given = {"model_size": "175", "pipeline_model_parallel": 8, "world_size": 4096, "num_microbatches": 8}
    job = command.job_of(given)
    assert (job.hidden_size, job.num_layers, job.num_attention_heads, job.num_microbatches) == (12288, 96, 96, 8)
    assert job.world_size == 4096 and job.pipeline_model_parallel == 8 and job.use_distributed_optimizer
    few = command.job_of({"world_size": 8, "pipeline_model_parallel": 2, "global_batch": 40, "micro_batch": 2})
    assert few.num_microbatches == 5
    assert command.job_of({"frame": "DeepSpeed"}).iterations == 3


def test_a_file_of_routing_is_that_of_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert command.job_of({"routing": "file:counts.json"}).routing == f"file:{tmp_path / 'counts.json'}"
    assert command.job_of({"routing": "zipf:1.2"}).routing == "zipf:1.2"


def test_stages_are_written_to_files_of_their_own(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: Trace, capsys: Said
) -> None:
    monkeypatch.setattr(command, "traced_by_frameworks", lambda jobs: [replace(recorded, job=job) for job in jobs])
    words = ["--world_size", "8", "--pp", "2", "--num_layers", "2", "--hidden_size", "256", "--all_stages"]
    assert cli.main(["trace", *words, "--output", str(tmp_path / "x.csv")]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.stage0.csv", "x.stage1.csv"]
    workload, _ = Workload.load(tmp_path / "x.stage1.csv")
    assert workload.iterations == recorded.job.iterations
    assert sum(item.is_communication for item in workload) == len(recorded.ops)
    monkeypatch.setattr(command, "traced_by_frameworks", pytest.fail)
    assert cli.main(["trace", *words, "--output", str(tmp_path / "x.csv")]) == 2, "refused before minutes of tracing"
    said = capsys.readouterr().err
    assert all(f"x.stage{stage}.csv: is there; give --force" in said for stage in range(2))


@pytest.mark.parametrize("stage", [-1, 2])
def test_a_stage_that_is_none_is_refused_by_its_own_name(stage: int, tmp_path: Path, capsys: Said) -> None:
    words = f"trace --world_size 8 --pp 2 --pp_stage {stage} --output {tmp_path / 'x.csv'}"
    assert cli.main(words.split()) == 2
    assert capsys.readouterr().err == f"error: pp_stage {stage} is none of the stages 0 to 1\n"


def test_clip_grad_is_a_number(
    versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, recorded: Trace
) -> None:
    asked: list[TraceJob] = []

    def run(jobs: list[TraceJob]) -> list[Trace]:
        asked.extend(jobs)
        return [recorded]

    monkeypatch.setattr(command, "traced_by_frameworks", run)
    assert cli.main(["trace", "--world_size", "8", "--clip_grad", "0.5", "--output", str(tmp_path / "x.csv")]) == 0
    assert [job.clip_grad for job in asked] == [0.5]


@pytest.mark.parametrize(
    ("frame", "package"), [("Megatron", "megatron-core"), ("FSDP2", "torch"), ("DeepSpeed", "deepspeed")]
)
def test_an_unknown_version_is_checked_before_anything_is_written(
    frame: str, package: str, versions: dict[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Said
) -> None:
    versions[package] = "0.99"
    known = {str(trace.job): trace for trace in load(command.SELF_CHECK)}
    asked: list[TraceJob] = []
    calls: list[int] = []

    def same(jobs: list[TraceJob]) -> list[Trace]:
        asked.extend(jobs)
        calls.append(len(jobs))
        return [known.get(str(job), next(iter(known.values()))) for job in jobs]

    words = f"trace --frame {frame} --world_size 8 --hidden_size 256 --output {tmp_path / 'x.csv'}".split()
    monkeypatch.setattr(command, "traced_by_frameworks", same)
    assert cli.main(words) == 0
    assert f"{package} is 0.99" in capsys.readouterr().err
    assert calls == [4 + 1], "together: the framework is imported once"
    assert {job.frame for job in asked} == {frame}
    assert len({str(job) for job in asked[:4]}) == 4 and all(str(job) in known for job in asked[:4])
    # The check is to take 5 seconds, and a world of thousands of ranks takes longer to set up.
    assert max(job.world_size for job in asked[:4]) <= 64
    (tmp_path / "x.csv").unlink()

    def other(jobs: list[TraceJob]) -> list[Trace]:
        first, *ops = same(jobs)[0].iterations[-1]
        changed = (replace(first, bytes=first.bytes + 1), *ops)
        return [replace(trace, iterations=(*trace.iterations[:-1], changed)) for trace in same(jobs)]

    monkeypatch.setattr(command, "traced_by_frameworks", other)
    assert cli.main(words) == 2
    assert "does not send what" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_difference_names_the_first_operation(recorded: Trace) -> None:
    assert command.first_difference(recorded, recorded) is None
    shorter = replace(recorded, iterations=(recorded.iterations[0], recorded.iterations[1][:-1]))
    found = command.first_difference(recorded, shorter)
    assert found is not None and str(len(shorter.ops)) in found


def test_a_process_that_dies_is_an_error() -> None:
    with pytest.raises(SimulationError, match="ended with code"):
        command.traced_by_frameworks([TraceJob()], python="/bin/false")


def test_the_traced_process_ends_with_the_one_that_asked(tmp_path: Path) -> None:
    stand_in, seen = tmp_path / "python", tmp_path / "seen"
    stand_in.write_text(f'#!/bin/sh\necho $$ > "{seen}.new"; mv "{seen}.new" "{seen}"; exec sleep 600\n')
    stand_in.chmod(0o755)
    code = f"from workloads.trace import command as c, job; c.traced_by_frameworks([job.TraceJob()], {str(stand_in)!r})"
    with subprocess.Popen([sys.executable, "-c", code], cwd=command.ROOT) as asking:
        while not seen.exists():
            assert asking.poll() is None
            time.sleep(0.01)
        asking.kill()
    state = Path(f"/proc/{seen.read_text().strip()}/stat")
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)


def test_what_was_given_in_vain_is_said(
    versions: dict[str, str], recorded: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Said
) -> None:
    monkeypatch.setattr(command, "traced_by_frameworks", lambda jobs: [recorded for _ in jobs])
    words = f"trace --world_size 8 --hidden_size 256 --num_layers 4 --output {tmp_path / 'x.csv'}".split()
    assert cli.main(words) == 0
    assert capsys.readouterr().err == ""
    assert cli.main([*words, "--routing", "zipf:1.2", "--layers_traced", "2,3", "--force"]) == 0
    idle = "note: no effect on this workload: --routing"
    whole = "note: no effect on this job: --layers_traced 2,3 saves no layer of its 4; it is traced whole"
    assert capsys.readouterr().err.splitlines() == [idle, whole]
