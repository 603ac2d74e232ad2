"""Opens the page of `aicb visualize` in a real browser where there is one, and checks everywhere what is on it."""

import lzma
import re
from pathlib import Path

import numpy as np
import pytest

from tests.browser import browser, needs_browser
from tests.pages import charts_of
from tests.tiers import NIGHTLY
from tests.workloads.gloo_runs import Fault, made, recorded
from workloads.analysis import binned, page, timeline
from workloads.cli import main
from workloads.job.errors import WorkloadFileError
from workloads.library import Block, CommGroup, CommType, LogItem, SimaiWorkload, Workload
from workloads.oplog.facts import LogFacts
from workloads.oplog.file import OpLog, file_name, write
from workloads.rows.ops import EPOCH_END, HEADER

DATA = Path(__file__).parents[1] / "data" / "aicb"
PICTURES = (
    "Timeline of all ranks", "Slowest iteration: 21", "Iterations", "Share of time", "Share of bytes",
    "Distribution of sizes: share of the operations up to a size",
    "busbw by size: median of a class, GB/s (GB = 1e9 bytes)",
    "Operations by type, group and size",
)  # fmt: skip


@pytest.fixture(scope="module")
def run_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run of four ranks whose iteration 21 has a fault."""
    folder = tmp_path_factory.mktemp("run")
    for log in made(recorded(4), 5, [Fault(2, 3, 21, lost_ns=300_000_000)]):
        write(folder / file_name(log.facts.rank), log)
    output = folder / "page.html"
    assert main(["visualize", str(folder), "--output", str(output)]) == 0
    return output


def headings(text: str) -> list[str]:
    return [*(chart["title"] for chart in charts_of(text)), *re.findall(r"<h2>(.*?)</h2>", text)]


def test_the_page_of_a_run_has_every_picture_and_stands_alone(run_page: Path) -> None:
    text = run_page.read_text()
    assert set(PICTURES) <= set(headings(text))
    assert "default-src 'none'" in text
    charts = charts_of(text)
    assert len(charts) == 9
    assert charts[0]["rows"] == [f"rank {rank}" for rank in range(4)]
    assert len(text) < 1_000_000


@needs_browser
def test_a_real_browser_runs_the_page_and_draws_it(run_page: Path) -> None:
    with browser() as opened:
        opened.open(run_page)
        assert opened.draw_all() == 9
        drawn = opened.value("[...document.querySelectorAll('figure.chart')].map((f) => Number(f.dataset.drawn))")
        assert all(drawn), drawn
        hide = "document.querySelector('.switches input').click(), document.querySelector('figure').dataset.drawn"
        assert int(opened.value(hide)) < drawn[0], "a kind that is switched off is not drawn"
        assert opened.complaints == [] and opened.requests == [run_page.as_uri()]


@pytest.mark.parametrize(
    ("file", "kind", "more"),
    [
        ("p_z3.log.csv", "run", ["Share of time", "Iterations"]),
        ("p_deepseek_tp2_ep2.workload.csv", "workload", ["Share of operations", "Iterations"]),
        ("p_z2c.workload.csv", "workload", ["Share of bytes"]),
    ],
)
def test_aicbs_own_logs_and_workloads_have_a_page(file: str, kind: str, more: list[str], tmp_path: Path) -> None:
    path = tmp_path / file
    path.write_bytes(lzma.decompress((DATA / "physical" / f"{file}.xz").read_bytes()))
    assert main(["visualize", str(path), "--output", str(tmp_path / "p.html")]) == 0
    text = (tmp_path / "p.html").read_text()
    assert f"<title>AICB {kind}: {file}</title>" in text
    assert set(more) <= set(headings(text))
    assert ("Share of time" in headings(text)) == (kind == "run")


SIMAI_TEXT = """HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 1 ga: 1 all_gpus: 8 \
checkpoints: 0 checkpoint_initiates: 0 pp_comm: 0
2
norm\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\tALLREDUCE\t64\t100
mlp\t-1\t700\tALLGATHER\t10\t1\tALLTOALL_EP\t20\t900\tREDUCESCATTER_DP_EP\t30\t100
"""
SIMAI_ORDER = [
    ("computation", "", 0, "forward.mlp"),
    ("all_gather", "tp_group", 10, "forward.mlp"),
    ("all_to_all", "ep_group", 20, "backward.mlp"),
    ("computation", "", 0, "backward.mlp"),
    ("reduce_scatter", "ep_dp_group", 30, "backward.mlp"),
    ("all_reduce", "dp_group", 64, "backward.norm"),
]


def test_a_simai_text_is_known_by_its_content_and_drawn_in_the_order_in_which_it_runs(tmp_path: Path) -> None:
    path = tmp_path / "text.csv"
    path.write_text(SIMAI_TEXT)
    shown = timeline.load(path)
    drawn = [(shown.classes[kind], shown.stages[at]) for kind, at in zip(shown.op_class, shown.stage, strict=True)]
    assert [(each.comm_type, each.group, each.size_bytes, stage) for each, stage in drawn] == SIMAI_ORDER
    path.write_text(
        "MICRO\n2\n" + "".join(f"m\t-1\t1\tNONE\t0\t1\tNONE\t0\t1\t{word}\t8\t1\n" for word in ("ALLGATHER", "NONE"))
    )
    assert [each.comm_type for each in timeline.load(path).classes] == ["all_gather"]
    assert main(["visualize", str(path), "--output", str(tmp_path / "page.html")]) == 0


def test_what_reads_csvs_alone_says_which_form_it_got(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, rows = tmp_path / "text.txt", tmp_path / "rows.csv"
    text.write_text(SIMAI_TEXT)
    rows.write_text(f"{HEADER}\n\n")
    for words in (["diff", str(text), str(rows)], ["log", str(text)], ["export", str(text), "--chakra", str(tmp_path)]):
        assert main(words) == 2
        assert "is a SimAI text, and no CSV" in capsys.readouterr().err
    with pytest.raises(WorkloadFileError, match=r"is a CSV, which Workload\.load reads"):
        SimaiWorkload.load(rows)
    assert main(["analyze", str(rows)]) == 2
    assert "`log` and `visualize` read CSVs" in capsys.readouterr().err


def test_every_type_and_group_has_a_picture() -> None:
    rows = [
        LogItem(comm_type, group, 4, 1000 * (1 + number), "s")
        for number, comm_type in enumerate(CommType)
        for group in (None, *CommGroup)
        if comm_type is not CommType.epoch_end
    ]
    text = page.html(timeline.of_rows(Path("all.csv"), Workload([EPOCH_END, *rows, EPOCH_END])))
    assert all(comm_type.name in text for comm_type in CommType if comm_type is not CommType.epoch_end)
    assert all(group.name in text for group in CommGroup)


def test_text_of_a_file_is_no_markup(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\"'&"
    row = LogItem(CommType.all_reduce, CommGroup.dp_group, 4, 1000, evil)
    (tmp_path / "<b>.csv").write_text("")
    text = page.html(timeline.of_rows(tmp_path / "<b>.csv", Workload([EPOCH_END, row, EPOCH_END])))
    assert "<script>alert" not in text and "<b>.csv" not in text
    assert "&lt;script&gt;alert(1)" in text


def large(records: int, ranks: int) -> list[OpLog]:
    """Logs with so many records in all: 100 iterations of operations of any size."""
    types = (CommType.all_reduce, CommType.all_gather, CommType.reduce_scatter, CommType.all_to_all)
    each = records // ranks // 100
    rows = [LogItem(types[op % 4], CommGroup.tp_group, ranks, 1024 * (op % 700 + 1), "x") for op in range(each - 1)]
    workload = Workload([EPOCH_END, Block([*rows, EPOCH_END], 100)])
    op = 1 + np.tile(np.arange(each), 100)
    iteration = np.repeat(np.arange(1, 101), each)
    random = np.random.default_rng(1)
    logs = []
    for rank in range(ranks):
        taken = random.integers(10_000, 2_000_000, len(op))
        done = np.cumsum(taken + random.integers(0, 900_000, len(op)))
        facts = LogFacts(rank=rank, world_size=ranks, mode="stream", groups={"tp_group": list(range(ranks))})
        logs.append(OpLog(facts, workload, op, iteration, done - taken, done, taken))
    return logs


def test_a_page_of_a_million_operations_is_under_five_megabytes() -> None:
    # The bins bound the page: with ever more operations it does not grow any more.
    shown = timeline.of_logs("large", large(1_000_000 if NIGHTLY else 100_000, 16))
    assert len(page.html(shown).encode()) < 5_000_000


def test_bins_hold_the_time_that_operations_fill() -> None:
    """One rank: busy from 0 to 500 with kind 0, from 500 to 900 with kind 1, then idle."""
    rows = [LogItem(CommType.all_reduce, elapsed_time=0.0005), LogItem(CommType.barrier, elapsed_time=0.0004)]
    whole = timeline.of_rows(Path("x"), Workload([EPOCH_END, *rows]))
    assert whole.start.tolist() == [0, 500]
    assert binned.spans(whole, np.array([0, 1]), 2, 0, 1000, 1.0) == ([0], [[(0, 0.0, 500.0)], [(0, 500.0, 900.0)]])


SOUND = {
    "comm_type": "CommType.all_reduce", "comm_group": "CommGroup.dp_group", "comm_group_size": "4", "msg_size": "1024",
    "stage": "step", "dst": "None", "src": "None", "additional": "", "_elapsed_time": "1.5", "algbw": "1.0",
    "busbw": "1.0", "count": "1",
}  # fmt: skip


def log_csv(path: Path, cells: dict[str, str], times: int = 1) -> Path:
    """A log CSV with one row so many times, of which some cells are as given."""
    row = ",".join((SOUND | cells).values())
    end = "CommType.epoch_end,None,None,0,,None,None,,2.5,0.0,0.0,1"
    path.write_text("\n".join([HEADER, end, *([row] * times), end, ""]))
    return path


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("_elapsed_time", ("nan", "inf", "1e300", "-5.0")), ("busbw", ("nan", "inf", "1e308", "-1")),
        ("msg_size", ("nan", "inf", "-5", "9" * 40, "9" * 400)), ("comm_type", ("x" * 90,)),
        ("comm_group_size", ("0", "-3", "1_0", "\u0664")),
        ("count", ("0", "-2")), ("dst", ("-1",)), ("stage", ("\x1b[31mred", "a\x07")), ("additional", ("\x9b2J",)),
    ],
)  # fmt: skip
def test_a_cell_that_cannot_be_is_named_by_every_reader(
    column: str, values: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for value in values:
        path = log_csv(tmp_path / "hostile.csv", {column: value})
        for words in (["visualize", str(path), "--output", str(tmp_path / "p.html")], ["log", str(path)]):
            assert main(words) == 2, (words[0], value)
            assert f"{path}, line 3: {column} is {value[:80]!r}" in capsys.readouterr().err
    assert not (tmp_path / "p.html").exists()


def test_the_largest_cells_are_shown_and_times_of_centuries_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    largest = {"_elapsed_time": "1e12", "msg_size": str(1 << 62), "busbw": "1e12", "algbw": "1e12"}
    output = ["--output", str(tmp_path / "p.html")]
    assert main(["visualize", str(log_csv(tmp_path / "large.csv", largest, 4)), *output]) == 0
    assert not re.findall(r"\b(?:nan|inf)\b", (tmp_path / "p.html").read_text().split("<h1>")[1].split("<script>")[0])
    assert main(["visualize", str(log_csv(tmp_path / "larger.csv", largest, 5)), *output]) == 2
    assert "larger.csv: has times that add up to 5e+09 s; allowed: 4.61e+09" in capsys.readouterr().err


def test_an_empty_workload_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.csv"
    path.write_text(lzma.decompress((DATA / "physical" / "p_z3.workload.csv.xz").read_bytes()).decode().split("\n")[0])
    assert main(["visualize", str(path), "--output", str(tmp_path / "p.html")]) == 2
    assert f"{path}: has no operations to show" in capsys.readouterr().err
    assert not (tmp_path / "p.html").exists()
