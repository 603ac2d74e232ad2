"""Mistakes in the input of `python -m simulation network` are named, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulation.cli import main
from simulation.network import memory_room, packet_code
from simulation.network.conf import NetworkConf, read_conf
from simulation.network.packets import network_of
from simulation.topology.reading import read
from tests.simulation.network.recordings import DATA, request, simulated

TOPOLOGY = DATA / "topology" / "specx_8_A100__Spectrum-X_8g_8gps_100Gbps_A100"
ROW = "L -1 1000 ALLREDUCE 16777216 1000 NONE 0 1000 NONE 0 100\n"
HEADER = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 8 ep: 1 pp: 1 vpp: 8 ga: 1 all_gpus: 8\n1\n"


def refused(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The message of a call that ends with exit code 2 and leaves no file."""
    before = sorted(tmp_path.iterdir())
    assert main(["network", "-r", f"{tmp_path}/out-", *words]) == 2
    assert sorted(tmp_path.iterdir()) == before
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "exactly one of the two"),
        (["--op", "AllReduce", "--size", "1M", "-r", f"{TOPOLOGY}/"], "is no folder"),
        (["--op", "AllReduce", "--size", "1M", "--output", "x"], "-r PREFIX names them"),
        (["--op", "AllReduce"], "--size is missing"),
        (["--op", "AllReduce", "--size", "0"], "--size 0: is zero bytes"),
        (["--op", "AllReduce", "--size", "2048T"], "--size 2048T: must be at most 1024T"),
        (["--op", "AllReduce", "--size", "1M", "--outage", "gpu0-*@1:99999999999999999999"], "must be within 1e+12 us"),
        (["--op", "AllReduce", "--size", "1M", "--trace", str(DATA)], "is a folder"),
        (["--op", "AllReduce", "--size", "1M", "-r", f"{TOPOLOGY}/x-"], "is no folder"),
        (["--op", "AllReduce", "--size", "1M", "--send-lat", "-1"], "--send-lat -1.0"),
        (["--op", "AllReduce", "--size", "1M", "--seed", "1", "--seeds", "2"], "one of the two"),
        (["--op", "AllReduce", "--size", "1M", "--routing", "rail"], "--routing rail: is for --level flow"),
        (["--op", "AllReduce", "--size", "1M", "--fast-forward", "--outage", "a@1:2"], "one of the two"),
        (["--op", "AllReduce", "--size", "1M", "--engine", "simai"], "each needs the other"),
        (["-w", "job.txt", "--group", "DP", "--ep", "2"], "--group DP: is for --op; a workload says it itself"),
        (["-w", "job.txt", "--tp", "1"], "--tp 1: is for --op"),
        (["-w", "job.txt", "--group", "TP", "--ep", "1"], "--group TP: is for --op"),
        (["-w", "job.txt", "--ep", "1"], "--ep 1: is for --op"),
        (["-w", "job.txt", "--vpp", "2"], "--vpp 2: is for --schedule interleaved"),
        (["--op", "AllReduce", "--size", "1M", "--vpp", "2", "--schedule", "interleaved"], "--vpp: is for -w"),
        (["--op", "AllReduce", "--size", "1M", "--schedule", "gpipe"], "--schedule: is for -w"),
        (["-w", "job.txt", "--dialect", "simai", "--algorithm", "tree"], "--algorithm tree: the original has ring"),
        (["-w", "job.txt", "--dialect", "simai", "--algorithm", "auto"], "--algorithm auto: the original has ring"),
        (["--op", "AllReduce", "--size", "1M", "--straggler", "3:1.3"], "--straggler: is for -w"),
        (["--op", "AllGather", "--size", "1M", "--algorithm", "tree"], "--algorithm tree: is for --op AllReduce"),
        (
            ["--op", "AllReduce", "--size", "1M", "--algorithm", "nvls"],
            "not possible here: the GPU's NVSwitches cannot",
        ),
        (["--op", "AllReduce", "--size", "1M", "--algorithm", "tree", "--pxn"], "not for --algorithm tree"),
        (["--op", "AllReduce", "--size", "1M", "--tp", "3"], "GPUs 8: must be a multiple of --tp 3"),
        (["--op", "AllReduce", "--size", "1M", "--group", "DP", "--tp", "8"], "its groups have one rank"),
    ],
)
def test_a_wrong_option_is_named(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(["-n", str(TOPOLOGY), *words], tmp_path, capsys)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER.replace("all_gpus: 8", "all_gpus: 64") + ROW, "has 8 GPUs"),
        (HEADER.replace("pp: 1", "pp: 2").replace("8 ep", "4 ep") + ROW, "pp_comm: 0"),
        (HEADER + ROW.replace("ALLREDUCE", "ALLREDUCE_PP"), "PP: has no flows"),
        (HEADER + ROW.replace("ALLREDUCE", "SCATTER"), "'SCATTER' is none of"),
        (HEADER + "L -1 1000\n", "fields where 12 are expected"),
        (HEADER + ROW.replace("16777216", "9" * 18), f"{'9' * 18} bytes: must be at most 1024T"),
        (HEADER.replace("all_gpus: 8", "all_gpus: -2") + ROW, "all_gpus is -2, allowed is 0 to"),
        (HEADER.replace("group: 8", "group: 3") + ROW, "must be a multiple of --tp 3"),
    ],
)
def test_a_workload_that_does_not_fit_is_named_with_its_line(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = tmp_path / "w.txt"
    workload.write_text(text, encoding="utf-8")
    error = refused(["-n", str(TOPOLOGY), "-w", str(workload)], tmp_path, capsys)
    assert message in error and "w.txt, line" in error


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CC_MODE 3\n", "CC_MODE 3: allowed is 1: nothing else"),
        ("HAS_WIN 0\n", "HAS_WIN 0: allowed is 1"),
        ("L2_ACK_INTERVAL 10\n", "L2_ACK_INTERVAL 10: allowed is 1"),
        ("ACK_HIGH_PRIO 1\n", "ACK_HIGH_PRIO 1: allowed is 0"),
        ("USE_DYNAMIC_PFC_THRESHOLD 0\n", "USE_DYNAMIC_PFC_THRESHOLD 0: allowed is 1"),
        ("RATE_BOUND 0\n", "RATE_BOUND 0: allowed is 1"),
        ("ENABLE_QCN yes\n", "is no value of ENABLE_QCN: 0 or 1"),
        ("VAR_WIN 2\n", "is no value of VAR_WIN: 0 or 1"),
        ("KMAX_MAP 1 -5 1\n", "is no value of KMAX_MAP: speeds above 0 bit/s"),
        (
            "KMIN_MAP 1 100 9\nKMAX_MAP 1 100 8\nPMAX_MAP 1 100 1\n",
            "KMIN_MAP, KMAX_MAP: KMIN must be at most KMAX, here at 100 bit/s",
        ),
        ("KMIN_MAP 1 0.5 1\n", "is no value of KMIN_MAP: speeds above 0 bit/s, whole numbers"),
        ("KMIN_MAP 2 100 1 100 2\n", "is no value of KMIN_MAP: each speed once"),
        ("ENABLE_QCN\n", "ENABLE_QCN: is no value of ENABLE_QCN: 0 or 1"),
        ("RATE_AI # 50Mb/s\n", "RATE_AI: is no value of RATE_AI: a positive number with a unit"),
        ("# CC_MODE 1\nHASH 1\n", "SimAI.conf: has no key of SimAI.conf"),
        ("BUFFER_SIZE many\n", "is no value of BUFFER_SIZE: a number from 1 to 1e+06"),
        ("RP_TIMER\n", "is no value of RP_TIMER: a number from 0.001 to"),
        ("KMAX_MAP 2 100 1\nRATE_AI fast\n", "is no value of KMAX_MAP: how many pairs follow"),
        ("KMAX_MAP two 100 1\n", "is no value of KMAX_MAP: how many pairs follow"),
        ("PACKET_PAYLOAD_SIZE 0\n", "is no value of PACKET_PAYLOAD_SIZE: a number from 1 to"),
        ("RP_TIMER 0\n", "is no value of RP_TIMER: a number from 0.001 to"),
        ("FAST_RECOVERY_TIMES 1.5\n", "is no value of FAST_RECOVERY_TIMES: a whole number"),
        ("EWMA_GAIN nan\n", "is no value of EWMA_GAIN: a number from 0 to 1"),
        ("PMAX_MAP 1 100000000000 2\n", "is no value of PMAX_MAP: values from 0 to 1"),
    ],
)
def test_a_wrong_configuration_is_named(
    text: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = tmp_path / "SimAI.conf"
    conf.write_text(text, encoding="utf-8")
    words = ["-n", str(TOPOLOGY), "--op", "AllReduce", "--size", "1M", "--conf", str(conf)]
    assert message in refused(words, tmp_path, capsys)


SHIPPED = """
ENABLE_QCN 1\nUSE_DYNAMIC_PFC_THRESHOLD 1\nPACKET_PAYLOAD_SIZE 9000\nCC_MODE 1\nL2_CHUNK_SIZE 4000\nL2_ACK_INTERVAL 1
L2_BACK_TO_ZERO 0\nHAS_WIN 1\nGLOBAL_T 0\nVAR_WIN 1\nRATE_BOUND 1\nACK_HIGH_PRIO 0\nLINK_DOWN 0 0 0\nRATE_AI 50Mb/s
"""


def test_values_that_simai_ships_are_those_simulated_and_other_keys_are_told(tmp_path: Path) -> None:
    conf = tmp_path / "SimAI.conf"
    conf.write_text(f"{SHIPPED}BUFER_SIZE 2\n# a remark\n // one\nCC_MODE 1 # DCQCN\n", encoding="utf-8")
    found, notes = read_conf(conf)
    assert found == NetworkConf()
    assert notes == [f"{conf}, line 16: BUFER_SIZE has no effect, it is no key of SimAI.conf that is known"]
    words = ["-n", str(TOPOLOGY), "--op", "AllReduce", "--size", "1M", "--conf", str(conf), "-r", f"{tmp_path}/"]
    assert notes[0] in request(words).notes
    conf.write_text(SHIPPED + 30 * "BUFER_SIZE 2\n", encoding="utf-8")
    notes = read_conf(conf)[1]
    assert len(notes) == 21 and notes[-1] == f"{conf}: 10 more lines have no effect"


def test_where_both_thresholds_are_equal_a_deeper_queue_marks_every_packet(tmp_path: Path) -> None:
    """Of eight packets for a GPU one goes on at once; behind the next ones wait 6 to 0 of 1052 bytes."""
    lines = [f"{gpu} 9 100Gbps 500ns 0" for gpu in range(9)]
    (tmp_path / "network").write_text("\n".join(["10 1 0 1 9 A100", "9", *lines, ""]), encoding="utf-8")
    conf = tmp_path / "SimAI.conf"
    text = "KMIN_MAP 1 100000000000 {0}\nKMAX_MAP 1 100000000000 {0}\nPMAX_MAP 1 100000000000 0\n"
    words = ["-n", f"{tmp_path}/network", "--op", "AllToAll", "--size", "9000", "--conf", str(conf)]
    marks = []
    for kilobytes in (1, 3, 1000):
        conf.write_text(text.format(kilobytes), encoding="utf-8")
        marks.append(simulated(request([*words, "-r", f"{tmp_path}/"], "framework")).marks)
    assert marks == [9 * 6, 9 * 4, 0]


@pytest.mark.parametrize("level", ["packet", "flow"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2 2 0 0 1 A100\n\n0 1 1e300Gbps 0.0005ms 0\n", "line 3"),
        ("2 2 0 0 1 A100\n\n0 1 0.5bps 0.0005ms 0\n", "a bandwidth from 1bps to 1000Tbps"),
        ("2 2 0 0 1 A100\n\n0 1 100Gbps 2s 0\n", "a latency of at most 1s"),
        ("2 2 0 0 1 A100\n\n0 1 100Gbps 1us 1\n", "a number from 0 to below 1"),
        ("2 2 0 0 0 A100\n\n", "line 1: promises 0 links"),
        ("2 2 0 0 3 A100\n\n0 1 100Gbps 0.0005ms 0\n", "line 1: promises 3 links, the file has 1"),
        ("", "line 1"),
    ],
)
def test_a_network_that_cannot_be_is_named_with_its_line(
    text: str, message: str, level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topology = tmp_path / "network"
    topology.write_text(text, encoding="utf-8")
    error = refused(["-n", str(topology), "--op", "AllReduce", "--size", "1M", "--level", level], tmp_path, capsys)
    assert message in error and "network, line" in error


def test_a_network_with_more_links_than_it_promises_runs_and_tells_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As SimAI's generator writes some of its networks."""
    more = tmp_path / "more"
    more.write_text("3 2 0 1 1 A100\n2\n0 2 100Gbps 1us 0\n1 2 100Gbps 1us 0\n", encoding="utf-8")
    words = ["network", "-n", str(more), "--op", "AllReduce", "--size", "1M", "-r", f"{tmp_path}/out-"]
    assert main(words) == 0
    assert "the header promises 1 links, the file has 2" in "".join(capsys.readouterr())


@pytest.mark.parametrize("speed", ["800Gbps", "1000Tbps"])
def test_a_long_fast_link_keeps_its_headroom(speed: str, tmp_path: Path) -> None:
    """Three times what arrives in 25 ms and in 1 s, in whole numbers without an end."""
    wait, bps = (25_000_000, 8 * 10**11) if speed == "800Gbps" else (10**9, 10**15)
    path = tmp_path / "long"
    path.write_text(f"3 2 0 1 2 A100\n2\n0 2 {speed} {wait}ns 0\n1 2 {speed} {wait}ns 0\n", encoding="utf-8")
    found = network_of(read(path).fabric, NetworkConf()).records["headroom"].tolist()
    assert found == [bps * wait // 8 // 10**9 * 3] * 4


def test_rows_that_no_clock_or_memory_holds_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = tmp_path / "w.txt"
    rows = ROW.replace("1000", "400000000000000") * 5
    workload.write_text(HEADER.replace("\n1\n", "\n5\n") + rows, encoding="utf-8")
    words = ["-n", str(TOPOLOGY), "-w", str(workload)]
    assert "6000000000000000 ns: must compute for at most 1e+15 ns" in refused(words, tmp_path, capsys)
    monkeypatch.setattr(memory_room, "available_bytes", lambda: 12_000)
    assert "for 5 rows, and 0.0 GB are free" in refused(words, tmp_path, capsys)


def test_ranks_that_cannot_reach_one_another_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    apart = tmp_path / "apart"
    apart.write_text("4 2 0 2 2 A100\n2 3\n0 2 100Gbps 0.0005ms 0\n1 3 100Gbps 0.0005ms 0\n", encoding="utf-8")
    error = refused(["-n", str(apart), "--op", "AllToAll", "--size", "1M"], tmp_path, capsys)
    assert f"{apart}: GPU 0 does not reach GPU 1 (2 such pairs): GPUs do not forward" in error


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_mistakes_of_all_options_and_files_are_named_at_once(
    level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload, conf, topology = (tmp_path / name for name in ("w.txt", "SimAI.conf", "network"))
    rows = ROW.replace("ALLREDUCE", "SCATTER") + ROW.replace("16777216", "9" * 18)
    head = HEADER.replace("all_gpus: 8", "all_gpus: 60").replace("\n1\n", "\n2\n")
    workload.write_text(head + rows, encoding="utf-8")
    conf.write_text("RP_TIMER 0\n", encoding="utf-8")
    topology.write_text("4 2 0 2 2 A100\n2 9\n0 2 0Gbps 0.0005ms 0\n1 3 100 5 0\n", encoding="utf-8")
    words = ["--level", level, "-w", str(workload), "-w", "missing.txt", "--conf", str(conf), "--straggler", "99:1.3"]
    error = refused(["-n", str(TOPOLOGY), *words], tmp_path, capsys)
    for place in ("line 1 all_gpus: 60", "line 1, --ranks", "line 3", f"line 4 {'9' * 18} bytes"):
        assert f"{workload}, {place}" in error
    assert f"{conf}, line 1 RP_TIMER 0" in error and "--straggler 99:1.3: must be a rank from 0 to 7" in error
    assert "-w missing.txt: cannot be read" in error
    error = refused(["-n", str(topology), *words, "--send-lat", "-1"], tmp_path, capsys)
    assert all(f"{topology}, line {number}" in error for number in (2, 3, 4))
    assert f"{conf}, line 1" in error and "--send-lat -1" in error


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_a_wrong_option_hides_no_mistake_of_a_file(
    level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not of the workload, nor of a run's folder, nor files that are there; nor does a network that cannot be read."""
    workload, there = tmp_path / "w.txt", tmp_path / "out-links.csv"
    rows = ROW.replace("ALLREDUCE", "SCATTER") + ROW.replace("16777216", "9" * 18)
    workload.write_text(HEADER.replace("\n1\n", "\n2\n") + rows, encoding="utf-8")
    there.write_text("older")
    words = ["--level", level, "--send-lat", "-1", "-w", f"{workload}@0-99", "--conf", "missing.conf"]
    words += ["--what-if", str(tmp_path), "--outage", "gpu0-*@2:1", "--straggler", "one"]
    said = [
        "--send-lat -1.0", "--conf missing.conf: cannot be read", f"{workload}, line 3", f"{workload}, line 4",
        f"--what-if {tmp_path}: is no folder of a run", "must end after it begins", "--straggler one: must be a rank",
        f"{there}: is there",
    ]  # fmt: skip
    for topology, more in ((TOPOLOGY, f"-w {workload}@0-99: must name GPUs"), (tmp_path / "no", "cannot be read")):
        error = refused(["-n", str(topology), *words], tmp_path, capsys)
        assert [each for each in [*said, more] if each not in error] == []


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_values_that_an_option_cannot_have_hide_no_other_mistake(
    level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And lead to none: with the wrong --op, which is taken as not given, an operation would be missing."""
    (tmp_path / "out-links.csv").write_text("older")
    words = ["--level", level, "--op", "Scatter", "--tp", "two", "--size", "0", "--send-lat", "-1", "--outage", "x@2:1"]
    words += ["--conf", "missing.conf", "--straggler", "one"]
    error = refused(["-n", str(TOPOLOGY), *words], tmp_path, capsys)
    for said in (
        "--op: invalid choice: 'Scatter'", "--tp: invalid int value: 'two'", "--send-lat -1.0",
        "missing.conf: cannot be read", "--outage x@2:1", "--straggler one", "out-links.csv: is there",
    ):  # fmt: skip
        assert said in error
    assert "exactly one of the two" not in error and "missing.conf: No such file" not in error


@pytest.mark.parametrize("level", ["packet", "flow"])
def test_a_misspelt_option_is_told_alone(level: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Not that what it gives is missing; of a required one both are true. A value with a blank is no option."""
    words = ["-n", str(TOPOLOGY), "--op", "AllGather", "--siez", "1M", "--level", level]
    assert refused(words, tmp_path, capsys).splitlines() == [
        "error: network: unrecognized arguments: --siez; did you mean --size? (see .venv/bin/python -m simulation "
        "network --help)"
    ]
    error = refused(["--netwrok=a", "--op", "AllGather", "--simulator", "--a b", "--", "--c"], tmp_path, capsys)
    assert "required: -n/--network" in error and "--netwrok; did you mean --network?" in error
    assert error.count("unrecognized") == 1


def test_of_a_collective_all_mistakes_are_named_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--op", "AllGather", "--size", "0", "--tp", "3", "--algorithm", "tree", "--seed", "0"]
    error = refused(["-n", str(TOPOLOGY), *words, "--engine", "simai", "--simulator", "'"], tmp_path, capsys)
    for said in ("--size 0: is zero", "multiple of --tp 3", "--algorithm tree", "--seed 0", "--simulator ': is no"):
        assert said in error
    error = refused(["-n", str(tmp_path / "no"), *words], tmp_path, capsys)
    assert "no: No such file" in error and "--size 0: is zero" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--schedule", "gpipe"], "--schedule gpipe: no workload has stages"),
        (["--schedule", "interleaved", "--vpp", "2"], "--schedule interleaved: no workload has stages"),
        (["--algorithm", "nvls"], "--algorithm nvls: no AllReduce of a workload can take it"),
    ],
)
def test_an_option_that_no_workload_can_use_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workload = tmp_path / "job.txt"
    workload.write_text(HEADER + ROW, encoding="utf-8")
    given = ["-n", str(TOPOLOGY), "-w", str(workload), *words]
    for level in ("packet", "flow"):
        assert message in refused([*given, "--level", level], tmp_path, capsys)


def test_a_straggler_without_a_job_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    workload = tmp_path / "w.txt"
    workload.write_text(HEADER.replace("8 ep", "4 ep").replace("all_gpus: 8", "all_gpus: 4") + ROW, encoding="utf-8")
    words = ["-n", str(TOPOLOGY), "-w", str(workload), "--straggler", "3:1.3", "--straggler", "6:1.3"]
    error = refused(words, tmp_path, capsys)
    assert "--straggler 6:1.3: must be a rank of a job" in error and "3:1.3" not in error


def test_what_is_compiled_is_compiled_again_when_its_modules_change() -> None:
    """The folder of the compiled code is named for the modules that have some; numba looks at a caller's file alone."""
    folder = Path(packet_code.__file__).parent
    texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.py")}
    compiled = {name for name, text in texts.items() if "\n@jit" in text or "\n@inlined" in text}
    assert compiled | {"packet_code", "packet_state", "hashing"} == set(packet_code.SOURCES)
