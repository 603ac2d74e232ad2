"""Whatever a stranger's options and files hold: a sentence and exit code 2, or a workload; never a traceback."""

import json
from pathlib import Path

import pytest

from simulation.cli import main as simulation
from tests.simulation.analytical.asking import CLUSTER, HEADER, row
from workloads.cli import main
from workloads.library import Workload, WorkloadArgs, generate
from workloads.rows.ops import HEADER as COLUMNS

END = "CommType.epoch_end,None,None,0,,None,None,,None,None,None,1"
MORE = "dtype,ranks,in_splits,out_splits,peer,module,micro_batch,phase,overlap,repeat"
BOM = "\ufeff"


def csv(*rows: str) -> str:
    """A workload of one iteration with these rows, in AICB's form or, with a cell of ranks, in the second."""
    full = rows[0].count(",") > COLUMNS.count(",")
    head, end = (f"{COLUMNS},{MORE}", f"{END}{',' * 10}") if full else (COLUMNS, END)
    return "".join(f"{line}\n" for line in (head, end, *rows, end))


def communication(kind: str = "all_reduce", group: str = "dp", ranks: int = 8, size: str = "1024") -> str:
    """A row in AICB's form."""
    return f"CommType.{kind},CommGroup.{group}_group,{ranks},{size},forward,None,None,,None,None,None,1"


def computation(size: str, kernel: str = "") -> str:
    """A row of a computation in AICB's form."""
    return f"CommType.computation,None,None,{size},forward.x,None,None,{kernel},None,None,None,1"


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("generate -m 7 --cp 0", "context_parallel_size is 0; it must be at least 1"),
        ("generate --world_size 16777217", "world_size is 16777217; it must be at most 16777216"),
        ("generate --every_stage --pp 0", "pipeline_model_parallel is 0; it must be at least 1"),
        ("generate --expert_tensor_parallel_size 1000000000000000003", "must be a multiple of expert_tensor_parallel"),
        ("generate --dialect aicb --num_layers 1000000000039 --pp 2 --world_size 2", "parallel: 1 or 1000000000039"),
    ],
)
def test_options_of_odd_sizes_are_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words.split(), "--output", "w.csv"]) == 2
    assert said in capsys.readouterr().err and not list(Path().iterdir())


@pytest.mark.parametrize(
    "args",
    [
        WorkloadArgs(frame="collective_test", micro_batch=0, world_size=8, iter_num=2),
        WorkloadArgs(frame="FSDP2", world_size=8, global_batch=4, num_layers=2),
        WorkloadArgs(frame="DeepSpeed", stage=2, allgather_bucket_size=1, world_size=4, num_layers=2, hidden_size=8192),
    ],
)
def test_odd_sizes_that_are_a_job_are_one(args: WorkloadArgs) -> None:
    dialect = "framework" if args.frame == "FSDP2" else "aicb"
    assert len(generate(args, dialect=dialect, break_rules=True)) > 2


def test_a_folder_takes_the_file_under_its_usual_name(tmp_path: Path) -> None:
    assert main(["generate", "--world_size", "2", "--tp", "2", "--output", str(tmp_path)]) == 0
    assert main(["generate", "--world_size", "2", "--pp", "2", "--every_stage", "--output", "."]) == 0
    names = sorted(each.name for each in tmp_path.glob("*.csv"))
    assert len(names) == 3 and [name.endswith("-stage1.csv") for name in names] == [False, True, False], names


@pytest.mark.parametrize("ending", ["yaml", "json"])
@pytest.mark.parametrize("name", ["\U0001f600 \u6a21", "a\u2028b\x85c", "a\x1b[2Jb", "\U0001f469\u200d\U0001f4bb"])
def test_a_model_of_any_name_is_described_and_said(
    name: str, ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = tmp_path / f"job.{ending}"
    assert main(["job", "--model_name", name, "--output", str(job)]) == 0
    assert main(["generate", "--job", str(job), "--output", "w.csv"]) == 0
    args = Workload.load("w.csv")[1]
    assert args is not None and args.model_name == name
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ['{"world_size": 2, "tp": 2}', "world_size: 2\ntp: 2\n"])
def test_a_job_of_an_editor_that_marks_its_files_is_read(text: str) -> None:
    path = Path("job.json" if text.startswith("{") else "job.yaml")
    path.write_text(BOM + text, encoding="utf-8")
    assert main(["generate", "--job", str(path), "--output", "w.csv"]) == 0


def test_a_workload_of_a_spreadsheet_is_read() -> None:
    text = csv(communication())
    Path("w.csv").write_text(BOM + text.replace("\n", "\r\n"), encoding="utf-8")
    assert [row.to_csv() for row in Workload.load("w.csv")[0]] == text.splitlines()[1:]
    assert simulation(["analytical", "-w", "w.csv", "-g", "8", *CLUSTER, "--output", "a.csv"]) == 0


FULL = "CommType.{},CommGroup.dp_group,4,8,forward,None,None,,None,None,None,1,bfloat16,0:1:4,{},,{},,,forward,,{}"


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        (csv(computation("(() (3 4))")), "show w.csv", "msg_size is '(() (3 4))', not two operand shapes"),
        (csv(computation("((-5 3) (3 4))")), "show w.csv", "line 3: msg_size is '((-5 3) (3 4))', not two"),
        (csv(communication(size="((2 3) (3 4))")), "export w.csv --chakra x", "but only a computation has operands"),
        (csv(communication(ranks=10**12)), "export w.csv --chakra x", "1000000000000 ranks are more than 16777216"),
        (
            csv(FULL.format("broadcast", "", 9, "")),
            "export w.csv --chakra x --world_size 8",
            "its root, rank 9, is none",
        ),
        (csv(FULL.format("all_to_all", f"{'9' * 30}*4", "", "")), "show w.csv", "splits are '9999"),
        (csv(FULL.format("all_reduce", "", "", "1000000000[]")), "log w.csv", "1000000002 rows; allowed in a log"),
        (HEADER.format(tp="x", ep="y", pp=1, vpp=1, ga=1, gpus=-8, pp_comm=0) + "\n0\n", "show w.csv", "ep is 'y'"),
    ],
)
def test_odd_files_are_refused(text: str, words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("w.csv").write_text(text)
    assert main(words.split()) == 2
    err = capsys.readouterr().err
    assert said in err and all(line.startswith("error: ") for line in err.splitlines()), err
    assert [each.name for each in Path().iterdir()] == ["w.csv"]


@pytest.mark.parametrize("form", ["aicb", "full", "simai"])
def test_all_wrong_rows_are_told_at_once(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Up to twenty, and how many more there are."""
    wrong = [f"row {number}" for number in range(30)]
    good = communication() if form == "aicb" else FULL.format("all_reduce", "", "", "")
    text = HEADER.format(tp=1, ep=1, pp=1, vpp=1, ga=1, gpus=8, pp_comm=0) + "\n30\n" if form == "simai" else csv(good)
    Path("w.csv").write_text(text.rstrip("\n") + "\n" + "\n".join(wrong) + "\n")
    assert main(["show", "w.csv"]) == 2
    lines = capsys.readouterr().err.splitlines()
    first = 3 if form == "simai" else len(text.splitlines()) + 1
    assert [line.partition(": ")[2].partition(": ")[0] for line in lines[:20]] == [
        f"w.csv, line {first + number}" for number in range(20)
    ]
    assert lines[20:] == ["error: w.csv: 10 more lines are wrong"]


def test_the_work_of_a_computation_beyond_63_bits_is_left_out_of_a_trace() -> None:
    Path("w.csv").write_text(
        csv(computation("((999999999 9999) (9999 999999999))"), computation("8", "x flops=" + "9" * 50))
    )
    assert main(["export", "w.csv", "--chakra", "x"]) == 0
    assert main(["import", "x/workload.0.et", "--output", "back.csv"]) == 0
    assert Path("back.csv").read_text() == Path("w.csv").read_text()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("world_size", "8", "values of another kind: world_size is '8'"),
        ("clip_grad", None, "values of another kind: clip_grad is None"),
        ("tensor_model_parallel_size", 0, "tensor_model_parallel_size is 0; it must be at least 1"),
        ("context_parallel_size", 3, "world_size 1 must be a multiple"),
    ],
)
def test_a_record_of_parameters_that_are_none_is_refused(
    name: str, value: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    generate(WorkloadArgs()).save("w.csv")
    record = Path("w.csv.args.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "args": {name: value}}))
    for asked in (["export", "w.csv", "--chakra", "x"], ["analytical", "-w", "w.csv", *CLUSTER, "-g", "8"]):
        assert (main if asked[0] == "export" else simulation)(asked) == 2
        err = capsys.readouterr().err
        assert said in err and "w.csv.args.json: is no record" in err


@pytest.mark.parametrize(
    ("text", "words", "said"),
    [
        ("[ rank0, rank1]\n" + csv(communication()), "", ""),
        (csv(FULL.format("all_reduce", "", "", "1000000000[]")), "", "has 1000000001 rows an iteration; allowed"),
        (
            "  " + HEADER.format(tp=1, ep=1, pp=1, vpp=1, ga=1, gpus=8, pp_comm=0) + f"\n1\n{row('ALLREDUCE 9')}\n",
            "",
            "",
        ),
        (csv(communication()), "--schedule gpipe --ga 1000000000", "runs 4000000000 passes, at most 20000000"),
        (csv(communication()), f"--explain {'9' * 5000}", "allowed is a row's number, 1 to 1"),
    ],
)
def test_what_the_analytical_model_reads_is_bounded(
    text: str, words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("w.csv").write_text(text)
    schedule = ["--pp", "2"] if "--schedule" in words else []
    output = [] if "--explain" in words else ["--output", "a.csv"]
    code = simulation(["analytical", "-w", "w.csv", "-g", "8", *CLUSTER, *words.split(), *schedule, *output])
    assert (code, said in capsys.readouterr().err) == (2 if said else 0, True)


@pytest.mark.parametrize(
    ("words", "other"),
    [
        ("generate -m 7 --world_size 8 --output w", "--seq_length 64"),
        ("simai -m 7 --world_size 8 --output w", "--seq_length 64"),
        ("job -m 7 --world_size 8 --output w", "--seq_length 64"),
    ],
)
def test_a_file_with_other_content_is_overwritten_with_force_alone(
    words: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert main(words.split()) == 0, "the same again is no overwriting"
    before = {path: path.read_bytes() for path in Path().iterdir()}
    assert main([*words.split(), *other.split()]) == 2
    assert "is there with other content; give --force to overwrite it" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
    assert main([*words.split(), *other.split(), "--force"]) == 0
    assert {path: path.read_bytes() for path in Path().iterdir()} != before


@pytest.mark.parametrize(
    "words",
    [
        "generate -m 7 --pp 2 --num_layers 4 --world_size 8 --every_stage --output w.csv",
        "suite --world_size 128 --rows 8,9 --output_dir .",
    ],
)
def test_of_a_set_of_files_all_that_are_others_are_told_and_none_is_written(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 0
    min(Path().iterdir()).unlink()
    before = {path: path.read_bytes() + b"edited" for path in Path().iterdir()}
    for path, data in before.items():
        path.write_bytes(data)
    capsys.readouterr()
    assert main(words.split()) == 2
    errors = capsys.readouterr().err
    assert [path for path in before if f"{path}: is there with other content" not in errors] == []
    assert {path: path.read_bytes() for path in Path().iterdir()} == before
