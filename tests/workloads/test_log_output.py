"""Holds what is printed and written of an executed workload to what AICB itself printed and wrote on four ranks."""

import lzma
import re
from fractions import Fraction
from pathlib import Path

import pytest

from training.benchmarks.aicb.pytorch.work.calls import Caller
from training.benchmarks.aicb.pytorch.work.stage import StageWorkload
from workloads.analysis import aicb_output as output
from workloads.cli import main
from workloads.job.groups import RankGroups
from workloads.library import CommGroup, CommType, Log, LogItem, Workload
from workloads.oplog.facts import LogFacts
from workloads.oplog.file import file_name
from workloads.oplog.measured import bandwidths, executed_bytes
from workloads.oplog.recorder import OpRecorder
from workloads.rows.calls import POINT_TO_POINT
from workloads.rows.ops import EPOCH_END, EXCHANGES

DATA = Path(__file__).parents[1] / "data" / "aicb" / "physical"
RUNS = sorted(path.name.removesuffix(".log.csv.xz") for path in DATA.glob("*.log.csv.xz"))
MESSAGE = re.compile(r"^\[[-\d]+ [:\d]+,\d{3}\] (\[INFO\] .*)$")


def recorded(name: str, kind: str) -> str:
    return lzma.decompress((DATA / f"{name}.{kind}.xz").read_bytes()).decode()


def load(name: str, folder: Path) -> Log:
    path = folder / f"{name}_log.csv"
    path.write_text(recorded(name, "log.csv"))
    return Log.load(path)


def messages(lines: list[str]) -> list[str]:
    """The lines with a time stamp, without it, and all others as they are."""
    return [found[1] if (found := MESSAGE.match(line)) else line for line in lines]


def table(lines: list[str], title: str) -> list[str]:
    start = lines.index(f"\t{title}")
    return lines[start : lines.index("", start)]


@pytest.mark.parametrize("name", RUNS)
def test_lines_and_table_are_aicbs_byte_for_byte(name: str, tmp_path: Path) -> None:
    log = load(name, tmp_path)
    log.frame = "collective_test" if "coll" in name else "Megatron"
    console = recorded(name, "console.log").split("\n")
    theirs = [line for line in messages(console) if "comm op:" in line or "micro_step" in line]
    ours = []
    for epoch, rows in enumerate(log.comm_log_each_epoch):
        ours += [output.op_line(row, 0) for row in rows]
        ours.append(output.iteration_line(epoch, log.epoch_times[epoch], 0).rstrip("\n"))
    assert messages(ours) == theirs
    printed = "\n".join(output.tables(log, 0)).split("\n")
    train = "Detailed comm info for AICB train stage"
    assert table(printed, train) == table(console, train)
    times = "Detailed info for AICB iteration time"
    assert (f"\t{times}" in printed) == (f"\t{times}" in console)
    if f"\t{times}" in console:
        assert table(printed, times)[:4] == table(console, times)[:4]
        # Max, min, mean and deviation; AICB's init is the first iteration, and its 90th percentile the largest.
        ours_now, aicbs = table(printed, times)[4].split(), table(console, times)[4].split()
        assert [ours_now[each] for each in (1, 2, 3, 5)] == [aicbs[each] for each in (1, 2, 3, 5)]
        assert ours_now[0] == f"{log.epoch_times[0]:.2f}"


@pytest.mark.parametrize("name", RUNS)
def test_a_log_csv_is_written_as_it_was_read(name: str, tmp_path: Path) -> None:
    log = load(name, tmp_path)
    assert sum(map(len, log.comm_log_each_epoch)) == len(log.comm_logs)
    assert len(log.epoch_times) == len(log.comm_log_each_epoch)
    log.save(tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_text() == recorded(name, "log.csv")


def test_a_workload_is_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.csv"
    path.write_text(recorded("p_tp2", "workload.csv"))
    assert main(["log", str(path)]) == 2
    assert f"{path}: has rows without _elapsed_time" in capsys.readouterr().err


ROWS = [
    LogItem(CommType.broadcast, CommGroup.dp_group, 4, 1000, "init", src=0),
    EPOCH_END,
    LogItem(CommType.all_gather, CommGroup.tp_group, None, 64_000_000, "forward"),
    LogItem(CommType.computation, msg_size=((8, 8), (8, 8)), stage="forward"),
    LogItem(CommType.isend, CommGroup.pp_group, 1, 32_000_000, "forward", additional="send_next"),
    LogItem(CommType.all_reduce, CommGroup.ep_group, 1, 4096, "step"),
    EPOCH_END,
]
FACTS = LogFacts(
    rank=0, world_size=4, mode="each", frame="Megatron", scale="1/4", wall_ns=1_790_000_000 * 10**9,
    groups={"tp_group": [0, 1], "pp_group": [0, 2], "dp_group": [0, 1, 2, 3], "ep_group": [0]},
)  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Op logs of two ranks: ten iterations of a gather of 10 ms, a GEMM of 1 ms, a send of 4 ms, a reduction of one."""
    for rank in (0, 3):
        log = OpRecorder(60)
        log.record(0, 0, 0, 2_000_000)
        log.record(1, 0, 0, 5_000_000)
        now = 5_000_000
        for iteration in range(1, 11):
            begin = now
            for op, ms in ((2, 10 * iteration), (3, 1), (4, 4), (5, 2)):
                log.record(op, iteration, now, now + ms * 1_000_000)
                now += ms * 1_000_000
            log.record(6, iteration, begin, now)
        groups = FACTS.groups if rank == 0 else {}
        facts = LogFacts(
            rank=rank, world_size=4, mode="each", frame="Megatron", scale="1/4", wall_ns=FACTS.wall_ns, groups=groups
        )
        log.save(tmp_path / "run" / file_name(rank), facts, Workload(ROWS))
    return tmp_path / "run"


@pytest.mark.parametrize("scale", ["1/64", "2/7"])
@pytest.mark.parametrize("kind", [kind for kind in CommType if kind not in POINT_TO_POINT])
def test_a_log_has_the_bytes_that_are_sent_at_a_scale(kind: CommType, scale: str) -> None:
    """A loss of 4 bytes at 1/64 is an element, not nothing."""
    facts = LogFacts(rank=0, world_size=4, mode="each", scale=scale, groups={"dp_group": [0, 1, 2, 3]})
    of = StageWorkload(Workload([EPOCH_END]), RankGroups(world_size=4), 0, 0, "x", "")
    made = Caller(of, 0, 4, Fraction(scale))
    for size, dtype in ((4, None), (1001.5, None), (4, "float32"), (1000, "float64"), (64, "bool")):
        row = LogItem(kind, CommGroup.dp_group, None, size, dtype=dtype)
        if row.comm_bytes:
            assert executed_bytes(row, facts) == made.call(row).bytes > 0
    uneven = LogItem(kind, CommGroup.dp_group, 4, 64, dtype="float32", in_splits=(0, 16, 32, 16))
    if kind in EXCHANGES:
        assert executed_bytes(uneven, facts) == made.call(uneven).bytes


def test_the_command_prints_an_op_log_with_the_executed_sizes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(folder), "--print_ops", "--csv", str(folder / "x_log.csv")]) == 0
    lines = capsys.readouterr().out.split("\n")
    stamp = "[2026-09-21 14:13:20,002] [INFO] [RANK 0] "
    assert lines[0] == (
        f"{stamp}comm op: CommType.broadcast | comm group: CommGroup.dp_group | time (ms): 2.00 "
        "| msg size: 250.0 B | algbw (GB): 0.00  | busbw (GB): 0.00 "
    )
    assert "--------epoch 0 | micro_step time 5.00 ---------" in lines[1]
    # 16 MB in 10 ms are 1.6 GB/s, of which two ranks see half on the bus; 8 MB in 4 ms are 2 GB/s.
    assert "time (ms): 10.00 | msg size: 15.26 MB | algbw (GB): 1.60  | busbw (GB): 0.80 " in lines[3]
    assert lines[4].endswith(
        "CommType.computation | comm group: None | time (ms): 1.00 | msg size: 0 | algbw (GB): 0 | busbw (GB): 0"
    )
    assert "| algbw (GB): 2.00  | busbw (GB): 2.00 " in lines[5]
    assert "| algbw (GB): 0.00  | busbw (GB): 0.00 " in lines[6]
    assert any(line.endswith("sizes are 1/4 of the workload's") for line in lines)
    spread = table(lines, "Distribution of times (ms) for AICB train stage")
    gather = next(line.split() for line in spread if "all_gather" in line)
    assert gather[-5:] == ["10.00", "55.00", "91.00", "99.10", "100.00"]
    whole = next(line.split() for line in spread if line.startswith("iteration"))
    assert whole[-5:] == ["17.00", "62.00", "98.00", "106.10", "107.00"]
    assert "broadcast" in table(lines, "Detailed comm info for AICB init stage")[4]
    assert table(lines, "Detailed info for AICB iteration time")[4].split()[:5] == [
        "5.00",
        "107.00",
        "17.00",
        "62.00",
        "98.00",
    ]
    assert "total time for Megatron and 10 iterations is 0.6250 s" in lines
    log = Log.load(folder / "x_log.csv")
    assert log.epoch_times == [5.0, *(10.0 * number + 7 for number in range(1, 11))]
    assert log.comm_log_each_epoch[1][0] == LogItem(
        CommType.all_gather, CommGroup.tp_group, None, 16_000_000, "forward", elapsed_time=10.0, algbw=1.6, busbw=0.8
    )
    assert Log.load(folder / file_name(0)).comm_logs == log.comm_logs


def test_gib_is_aicbs_unit_and_is_called_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(folder), "--print_ops", "--units", "GiB"]) == 0
    assert "| algbw (GiB): 1.49  | busbw (GiB): 0.75 " in capsys.readouterr().out


def test_a_rank_that_is_not_there_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["log", str(folder), "--rank", "1"]) == 2
    assert "has no log of rank 1; there is 0, 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("comm_type", "ranks", "busbw"),
    [
        (CommType.all_reduce, 4, 1.5), (CommType.all_gather_into_tensor, 4, 0.75), (CommType.all_to_all, 4, 0.75),
        (CommType.all_to_all_single, 2, 0.5), (CommType.broadcast, 4, 1.0), (CommType.reduce_scatter_tensor, 1, 0.0),
        (CommType.irecv, 2, 1.0), (CommType.barrier, 4, 0.0), (CommType.gather, 4, 0.75),
    ],
)  # fmt: skip
def test_bus_bandwidth_is_nccl_tests(comm_type: CommType, ranks: int, busbw: float) -> None:
    row = LogItem(comm_type, CommGroup.dp_group, ranks, 10**9)
    assert bandwidths(row, 10**9, 1000, ranks)[1] == busbw
    assert bandwidths(row, 10**9, 0, ranks) == (0, 0)
