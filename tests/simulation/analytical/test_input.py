"""What is wrong in the input: one line for each mistake, exit code 2, no traceback, no file."""

import os
import sys
from pathlib import Path

import pytest

from tests.simulation.analytical import recorded
from tests.simulation.analytical.asking import CLUSTER, ask, row, write

POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
GOOD = ("-g", "8", *CLUSTER)
NO_TYPES = ("-g", "8", "-g_p_s", "8", "-n_p_s", "8")
OLD = "HYBRID_TRANSFORMER_FWD_IN_BCKWD\tmodel_parallel_NPU_group: {tp} checkpoints: 0 checkpoint_initiates: 0"
# The first lines of AICB's bundled workloads (workload/simAI, commit b6f180c4): name, first line, rows in line 2.
BUNDLED = (
    ("all_gather_hdrpatched", "MICRO", 19),
    ("all_reduce_hdrpatched", "MICRO", 19),
    ("all_to_all_hdrpatched", "MICRO", 19),
    ("muti_all_reduce_hdrpatched", OLD.format(tp=8), 19),
    ("G13B-M1-C01_GPT13B_megatron_tp8_pp1_mbs1_A100_hdrpatched", OLD.format(tp=8), 92),
    ("G13B-M1-C02_GPT13B_megatron_tp8_pp1_mbs1_sp_A100_hdrpatched", OLD.format(tp=8), 172),
    ("G175B-M1-C03_GPT175B_megatron_tp8_pp1_mbs1_A100_hdrpatched", OLD.format(tp=8), 33),
    ("L65B-M1-C05_Llama65B_megatron_tp8_pp1_mbs1_A100_hdrpatched", OLD.format(tp=8), 839),
    ("L65B_D1_C08_Llama65B_deepspeed_zero3_A100_hdrpatched", OLD.format(tp=1), 12),
    ("L7B-D1-C02_Llama7B_deepspeed_zero3_A100_hdrpatched", OLD.format(tp=1), 12),
    ("L7B-M1-C04_Llama7B_megatron_tp2_pp1_mbs1_A100_hdrpatched", OLD.format(tp=2), 76),
)


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def refused(tmp_path: Path, *words: str) -> str:
    before = sorted(tmp_path.iterdir())
    answer = ask(*words)
    assert answer.code == 2, answer
    assert "Traceback" not in answer.err and all(
        line.startswith(("error: ", "warning: ")) for line in answer.err.splitlines()
    )
    assert sorted(tmp_path.iterdir()) == before, "nothing is written"
    return answer.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("-g", "8", "-g_p_s", "8", "-nv", "360", "-nic", "48.5"), ["-n_p_s"]),
        (("-g", "8", "-n_p_s", "8", "-nv", "360", "-nic", "48.5"), ["-g_p_s"]),
        (("-g_p_s", "8", "-n_p_s", "8", "-nv", "360"), ["-g: is missing"]),
        (("-g", "abc", *CLUSTER), ["-g abc"]),
        ((*GOOD, "-nic_t", "cx7"), ["-nic_t cx7: has no effect beside -nic"]),
        (
            (*GOOD, "--explain", "1", "--output", "a.csv", "-r", "b", "-v"),
            ["--output a.csv: has no effect", "-r b: has no effect", "-v 1: has no effect"],
        ),
        (("-g", "0", *CLUSTER), ["-g 0"]),
        (("-g", "-8", *CLUSTER), ["-g"]),
        ((*NO_TYPES, "-g_type", "B300", "-nic_t", "cx9"), ["-g_type B300", "B200", "-nic_t cx9", "cx8"]),
        ((*NO_TYPES, "-nic_t", "cx7"), ["-g_type: is missing"]),
        ((*GOOD, "-dp_o", "2"), ["-dp_o 2", "0 to 1"]),
        ((*GOOD, "-tp_o", "-0.1"), ["-tp_o -0.1"]),
        ((*GOOD, "-ep_o", "nan", "-pp_o", "x"), ["-ep_o nan", "-pp_o x"]),
        ((*GOOD, "-nv", "0"), ["-nv 0"]),
        ((*GOOD, "-nic", "inf"), ["-nic inf"]),
        ((*GOOD, "-v", "2"), ["-v 2"]),
        ((*GOOD, "--explain", "0"), ["--explain 0"]),
        ((*GOOD, "--explain", "2"), ["--explain 2", "1 to 1"]),
        ((*GOOD, "--without", "gigabytes"), ["gigabytes", "did you mean gigabyte?"]),
        ((*GOOD, "--tp", "0"), ["--tp 0"]),
        (("-g", "9", *CLUSTER, "--tp", "2"), ["-g 9", "8 is"]),
        (("-g", "8", *CLUSTER, "--ep", "3"), ["-g 8", "ep 3"]),
        ((*GOOD, "-busbw", "nowhere.yaml"), ["-busbw nowhere.yaml"]),
        ((*GOOD, "--unknown"), ["--unknown"]),
        ((*GOOD, "-nv", "1e-300"), ["-nv 1e-300", "0.001"]),
        (("-g", "9" * 5000, *CLUSTER), ["-g 9"]),
        ((*GOOD, "--output", "w"), ["--output w", "input of this run"]),
        ((*GOOD, "--output", "x.json"), ["--output x.json"]),
        ((*GOOD, "--group", "7=TP"), ["--group 7=TP", "Chakra"]),
    ],
)
def test_a_wrong_option_is_refused(options: tuple[str, ...], said: list[str], tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1048576")])
    text = refused(tmp_path, "-w", str(path), *options)
    assert all(word in text for word in said), text


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text("XX: {allreduce: 1}\nTP: {allreduce: -1}\n")
    text = refused(tmp_path, "-w", "nowhere.txt", "-g", "x", "-g_p_s", "y", "-g_type", "Z", "-busbw", "b.yaml")
    for word in ("nowhere.txt", "-g x", "-g_p_s y", "-n_p_s", "-g_type Z", "XX", "TP, allreduce"):
        assert word in text, text


@pytest.mark.parametrize("dialect", ["simai", "clusterdyno"])
@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "none of: SimAI text"),
        ("nonsense\n1\n", "none of: SimAI text"),
        (f"{POLICY} ep: 1\n0\n", "line 1: lacks model_parallel_NPU_group"),
        (
            f"{POLICY} model_parallel_NPU_group: x ep: 1\n0\n",
            "line 1: model_parallel_NPU_group is 'x'",
        ),
        (f"{POLICY} model_parallel_NPU_group: 8 ep: 0\n0\n", "line 1: ep is 0"),
        (f"{POLICY} model_parallel_NPU_group: 8 zz: 1\n0\n", "zz is unknown"),
        (
            f"{POLICY} model_parallel_NPU_group: 8 pp_comm: 2147483648\n0\n",
            "pp_comm is 2147483648",
        ),
        ("MICRO\nmany\n", "line 2: 'many'"),
        ("MICRO\n1\nlayer -1 1 NONE 0\n", "line 3, layer: 5 fields where 12 are expected"),
        ("MICRO\n1\nlayer -1 x NONE 0 1 NONE 0 1 NONE 0 1\n", "forward compute time in ns is 'x'"),
        ("MICRO\n1\nlayer -1 1 ALLREDUCE -4 1 NONE 0 1 NONE 0 1\n", "bytes of the forward phase is -4"),
        ("MICRO\n0\n", "line 2: says 0 rows: there is nothing to compute"),
        ("MICRO\n" + "9" * 5000 + "\n", "line 2: '999"),
        (f"{POLICY} model_parallel_NPU_group: {'9' * 5000}\n0\n", "line 1: model_parallel_NPU_group is 1e+19"),
        (f"{POLICY} model_parallel_NPU_group: 1e400\n0\n", "line 1: model_parallel_NPU_group is '1e400'"),
        ("MICRO\n1\nlayer -1 1 ALLREDUCE 1e300 1 NONE 0 1 NONE 0 1\n", "is 1e300, allowed is 0 to 2^63 - 1"),
        ("MICRO\n1\n" + "x" * 100_000 + "\n", "1 fields where 12 are expected"),
        (b"MICRO \xff\xfe\n1\n", "is not a text file"),
    ],
)
def test_a_wrong_workload_is_refused(content: str | bytes, said: str, dialect: str, tmp_path: Path) -> None:
    path = tmp_path / "w"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert said in refused(tmp_path, "-w", str(path), *GOOD, "--dialect", dialect)


def test_blank_lines_are_no_rows_to_simai_and_a_mistake_to_us(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(ns=1000), "", "   ", row(ns=1000), "\t", ""])
    path.write_text(path.read_text().replace("\n6\n", "\n2\n"))
    assert ask("-w", str(path), *GOOD, "--dialect", "simai", "--json").summary["computation_us"] == 6
    assert "line 4: is blank where 12 fields belong" in refused(tmp_path, "-w", str(path), *GOOD)
    path = write(tmp_path / "v", [row(ns=1000), " " * 100])
    assert "1 fields where 12 are expected" in refused(tmp_path, "-w", str(path), *GOOD)


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    assert "cannot be read" in refused(tmp_path, "-w", str(tmp_path), *GOOD)
    assert "cannot be read" in refused(tmp_path, "-w", "nowhere", *GOOD)


def test_a_wrong_number_of_rows_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(), row()])
    for rows in (1, 3):
        path.write_text(path.read_text().replace("\n2\n", f"\n{rows}\n").replace("\n1\n", f"\n{rows}\n"))
        assert f"says {rows} rows, but 2 follow" in refused(tmp_path, "-w", str(path), *GOOD)


def test_a_message_of_a_petabyte_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1125899906842625")], tp=8)
    assert "2^50" in refused(tmp_path, "-w", str(path), *GOOD)


def test_a_server_may_be_larger_than_the_cluster(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1073741824", ns=1000)], tp=2)
    options = ("-n_p_s", "8", "-nv", "360", "-nic", "48.5", "--json", "-r", "x-")
    wide = ask("-w", str(path), "-g", "8", "-g_p_s", "2147483647", *options)
    assert wide.code == 0 and wide.summary == ask("-w", str(path), "-g", "8", "-g_p_s", "8", *options).summary


def test_an_unknown_collective_is_refused_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(), row("ALLREDUCEX 4"), row("ALLREDUCE_XX 4")])
    text = refused(tmp_path, "-w", str(path), *GOOD)
    assert "line 4, layer" in text and "'ALLREDUCEX'" in text and "line 5" in text and "BROADCAST" in text


@pytest.mark.parametrize("dialect", ["simai", "clusterdyno"])
@pytest.mark.parametrize(("name", "first", "rows"), BUNDLED, ids=[name for name, _, _ in BUNDLED])
def test_the_workloads_that_aicb_bundles_are_read(
    name: str, first: str, rows: int, dialect: str, tmp_path: Path
) -> None:
    path = recorded.workload(name, tmp_path)
    _, _, *rest = path.read_text().split("\n")
    path.write_text("\n".join([first, str(rows), *rest]))
    answer = ask("-w", str(path), "-g", "128", *CLUSTER, "--dialect", dialect, "--json")
    assert answer.code == 0, answer.err
    assert f"warning: {path}: the header is" in answer.err
    assert all(key in answer.err for key in ("ep", "pp", "vpp", "ga"))
    assert ("says 839 rows, but 33 follow" in answer.err) == (rows == 839)
    assert answer.total > 0


def test_what_is_assumed_or_differs_is_said(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(ns=1000)], gpus=16)
    said = ask("-w", str(path), "-g", "8", "-g_p_s", "8", "-n_p_s", "8", "-g_type", "H100").err
    assert "neither -nic nor -nic_t is given: cx7 is taken" in said
    assert "-g is 8, but" in said and "was made for 16 GPUs" in said


def test_the_originals_dialect_says_when_its_result_is_meaningless(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row("ALLREDUCE 1073741824")], tp=8)
    options = ("-w", str(path), "-g", "8", "-g_p_s", "8", "--dialect", "simai")
    said = ask(*options, "-g_type", "B200", "-nic_t", "cx9", "-dp_o", "2").err
    assert all(f"{flag}" in said for flag in ("-n_p_s", "-g_type B200", "-nic_t cx9", "-dp_o 2"))
    assert said.count("meaningless") == 4


@pytest.mark.parametrize("flag", ["-nv", "-nic"])
def test_the_originals_dialect_takes_a_bandwidth_of_nothing(flag: str, tmp_path: Path) -> None:
    """As it takes a type that it does not know: its bandwidth is then -1."""
    path = write(tmp_path / "w", [row("ALLREDUCE 1073741824", ns=1000)], tp=8)
    options = ("-w", str(path), "-g", "8", "-g_p_s", "8", "-n_p_s", "8", "--dialect", "simai", "-r", "x-")
    assert ask(*options, "-g_type", "B200").code == 0
    unknown = Path("x-EndToEnd.csv").read_text()
    zero = ask(*options, flag, "0")
    assert zero.code == 0 and "meaningless" in zero.err
    assert Path("x-EndToEnd.csv").read_text() == unknown and ",1844674407" in unknown
    assert "allowed is a bandwidth" in refused(tmp_path, *options, flag, "fast")


def test_the_originals_dialect_takes_more_ranks_than_gpus(tmp_path: Path) -> None:
    """It divides whole numbers: groups of no GPU, whose collectives cost nothing."""
    path = write(tmp_path / "w", [row("ALLGATHER 4096", weight="ALLREDUCE_DP_EP 1073741824", ns=1000)], tp=4, ep=8)
    assert ask("-w", str(path), "-g", "8", *CLUSTER, "--dialect", "simai", "--json").summary["exposed_us"]["DP_EP"] == 0
    assert "no multiple of ep 8" in refused(tmp_path, "-w", str(path), "-g", "8", *CLUSTER)


def test_an_old_header_gives_what_the_patched_one_gives(tmp_path: Path) -> None:
    patched = recorded.workload(BUNDLED[4][0], tmp_path)
    old = tmp_path / "old.txt"
    old.write_text("\n".join([BUNDLED[4][1], *patched.read_text().split("\n")[1:]]))
    options = ("-g", "128", *CLUSTER, "--json", "-r", "x-")
    assert ask("-w", str(old), *options).summary == ask("-w", str(patched), *options).summary


def test_surplus_rows_are_not_read_in_the_originals_dialect(tmp_path: Path) -> None:
    path = write(tmp_path / "w", [row(ns=1000), row(ns=1000)])
    path.write_text(path.read_text().replace("\n2\n", "\n1\n"))
    assert ask("-w", str(path), *GOOD, "--dialect", "simai", "--json").summary["computation_us"] == 3


def test_a_pipe_as_workload_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "-w pipe: is no regular file" in refused(tmp_path, "-w", "pipe", *GOOD)


def test_a_folder_of_results_beside_an_output_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "w.txt", [row()])
    assert "-r_f there: has no effect beside --output" in refused(
        tmp_path, "-w", str(path), *GOOD, "--output", "x.csv", "-r_f", "there"
    )


def test_an_output_may_be_a_folder_or_a_device(tmp_path: Path) -> None:
    path = write(tmp_path / "w.txt", [row()])
    (tmp_path / "there").mkdir()
    assert ask("-w", str(path), *GOOD, "-r", "x-", "--output", "there").code == 0
    assert sorted(each.name for each in (tmp_path / "there").iterdir()) == ["x-EndToEnd.csv", "x-EndToEnd.json"]
    answer = ask("-w", str(path), *GOOD, "--output", "/dev/null")
    assert answer.code == 0 and "1 row, " in answer.out and ".json" not in answer.out


def test_a_file_of_bus_bandwidths_says_which_package_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "w.txt", [row()])
    (tmp_path / "b.yaml").write_text("TP: {allreduce: 300}\n")
    monkeypatch.setitem(sys.modules, "yaml", None)
    answer = ask("-w", str(path), *GOOD, "-busbw", "b.yaml")
    assert answer.code == 1
    assert answer.err == "error: -busbw needs PyYAML: pip install -r requirements/simulation.txt\n"


def test_a_result_of_the_original_that_is_no_time_has_a_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "w.txt", [row("ALLREDUCE 16777216")], tp=8)
    (tmp_path / "b.yaml").write_text("TP: {allgather: 300}\n")
    words = ("-w", str(path), *GOOD, "--dialect", "simai", "-busbw", "b.yaml")
    assert "knows no bandwidth of a collective" in ask(*words).err
    (tmp_path / "b.yaml").write_text("TP: {allreduce: 300}\n")
    assert "no bandwidth" not in ask(*words).err
