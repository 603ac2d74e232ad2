"""The file of a job: what is written of one is read as the same, options stand above it, and mistakes are told."""

import json
import random
from pathlib import Path

import pytest
import yaml

from tests.tiers import samples
from workloads import dialects, options
from workloads.cli import main
from workloads.job.parameters import DEFAULTS, FRAMES, KINDS, MEANINGS, WorkloadArgs
from workloads.library import Workload
from workloads.trace import command as trace
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace

JOBS = (
    "-m 13 --world_size 16 --tp 2 --sp --num_layers 4",
    "-m llama3_70b --world_size 64 --num_layers 8",
    "--frame DeepSpeed -m 7 --zero_stage 3 --world_size 8 --num_layers 2",
    "--frame DeepSpeed --world_size 4 --num_layers 2 --prefetch_bucket_size 1e9 --contiguous_gradients=0",
    "--frame FSDP2 --world_size 8 --global_batch 8 --num_layers 2 --reshard_after_forward false --clip_grad 0.5",
    "--dialect aicb --frame collective_test --world_size 8 --begin_size 4K --end_size 1M --iter_num 2",
)


@pytest.mark.parametrize("ending", ["yaml", "json"])
@pytest.mark.parametrize("words", JOBS)
def test_a_workload_of_a_written_job_is_that_of_its_options(words: str, ending: str, tmp_path: Path) -> None:
    job, by_file, by_options = tmp_path / f"job.{ending}", tmp_path / "file.csv", tmp_path / "options.csv"
    dialect = ["--dialect", "aicb"] if "aicb" in words else []
    assert main(["job", *words.split(), "--output", str(job)]) == 0
    assert main(["generate", *words.split(), "--output", str(by_options)]) == 0
    assert main(["generate", *dialect, "--job", str(job), "--output", str(by_file)]) == 0
    assert by_file.read_bytes() == by_options.read_bytes()
    assert Workload.load(by_file)[1] == Workload.load(by_options)[1]


def _drawn(draw: random.Random) -> dict[str, object]:
    """Any values of any parameters, by the types that the fields have."""
    found: dict[str, object] = {}
    for name in draw.sample(sorted(KINDS), draw.randint(1, 20)):
        choices, kind = MEANINGS[name].choices, KINDS[name]
        if choices:
            found[name] = draw.choice(choices)
        elif kind in (bool, bool | None):
            found[name] = draw.random() < 0.5
        elif kind is float:
            found[name] = draw.choice([0.0, 1.5, 1e-7, 3.0])
        elif kind in (str, str | None):
            found[name] = draw.choice(["yes", "1e3", "a: b # c", "null", "\u00e9\n'", ""])
        else:
            found[name] = draw.choice([1, 7, 10**12, 2**63 - 1])
    return found


@pytest.mark.parametrize("seed", samples(60, 2000))
def test_any_values_are_read_back_as_they_were(seed: int, tmp_path: Path) -> None:
    from workloads.job.description import read, text_of

    draw = random.Random(seed)
    args = WorkloadArgs(**_drawn(draw))  # type: ignore[arg-type]
    kinds = {name: option.kind for name, option in options.OPTIONS.items()}
    for ending in ("yaml", "json"):
        path = tmp_path / f"job.{ending}"
        path.write_text(text_of(args, as_json=ending == "json"))
        assert yaml.safe_load(path.read_text()) is not None
        assert WorkloadArgs(**read(path, kinds)) == args


def test_options_stand_above_the_file_and_the_file_above_its_preset(tmp_path: Path) -> None:
    job = tmp_path / "job.yml"
    job.write_text("model_size: 13\nworld-size: 16\ntp: 2\nnum_layers: 4\nbucket_size: 2e8\nsp: true\n")
    given: dict[str, object] = {"job": job, "num_layers": 6}
    args = options.described(given, "csv", "framework")
    assert (args.hidden_size, args.world_size, args.tensor_model_parallel_size) == (5120, 16, 2)
    assert (args.num_layers, args.bucket_size, args.enable_sequence_parallel) == (6, 200_000_000, True)


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = tmp_path / "job.json"
    wrong = {"world_sise": 8, "tp": "two", "frame": "Megatorn", "stage": 4, "swiglu": 1, "hidden_size": None, "pp": 2}
    job.write_text(json.dumps({**wrong, "pipeline_model_parallel": 4}))
    assert main(["generate", "--job", str(job), "--output", str(tmp_path / "w.csv")]) == 2
    said = capsys.readouterr().err.splitlines()
    for part in (
        "world_sise: is no parameter of a job; did you mean world_size?", "tensor_model_parallel_size is 'two'",
        "frame is 'Megatorn': input should be 'Megatron', 'DeepSpeed'", "stage is '4': input should be 1, 2 or 3",
        "swiglu is '1'", "hidden_size is 'None'", "pipeline_model_parallel: is there twice",
    ):  # fmt: skip
        assert any(line.startswith(f"error: {job}") and part in line for line in said), part
    assert len(said) == 7 and not (tmp_path / "w.csv").exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("x.json", "{", "is no JSON"),
        ("x.json", '{"pp": 1, "pp": 2}', "pp: is there more than once"),
        ("x.yaml", "pp: 1\npp: 2\n", "pp: is there more than once"),
        ("x.yaml", "- 1\n", "does not map parameters to values"),
        ("x.yaml", "7: 8\n", "7: is no parameter of a job"),
        ("x.yaml", "model_size: 14\n", "there is no model_size '14'"),
    ],
)
def test_what_is_no_job_is_refused(
    name: str, text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert main(["simai", "--job", str(tmp_path / name), "--output", str(tmp_path / "w")]) == 2
    assert said in capsys.readouterr().err
    assert main(["simai", "--job", str(tmp_path / "missing"), "--output", str(tmp_path / "w")]) == 2
    assert "missing: No such file" in capsys.readouterr().err


def test_a_trace_is_of_the_job_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[TraceJob] = []

    def ask(jobs: list[TraceJob]) -> list[Trace]:
        asked.extend(jobs)
        return []

    monkeypatch.setattr(trace, "missing_or_unknown", lambda _: None)
    monkeypatch.setattr(trace, "traced_by_frameworks", ask)
    job = tmp_path / "job.yaml"
    words = ["--frame", "FSDP2", "--world_size", "8", "--num_layers", "3", "--global_batch", "16"]
    assert main(["job", *words, "--output", str(job)]) == 0
    for given in (words, ["--job", str(job)]):
        assert main(["trace", *given, "--output", str(tmp_path / "x.csv")]) == 0
    assert asked[0] == asked[1] and (asked[0].frame, asked[0].num_layers) == ("FSDP2", 3)


def test_every_parameter_says_what_it_is() -> None:
    assert set(MEANINGS) == set(DEFAULTS.to_dict())
    assert all(each.help and not each.help.endswith(".") for each in MEANINGS.values())
    assert [
        name for name, each in MEANINGS.items() if each.choices and getattr(DEFAULTS, name) not in each.choices
    ] == []
    assert MEANINGS["frame"].choices == FRAMES and set(dialects.names()) == {"aicb", "framework"}
