"""What the tools of others print is read: documented and recorded outputs, other things, and nothing."""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.benchmarks.tools.inspector import read as read_inspector
from training.benchmarks.tools.table import TOOLS
from vendors.programs import MAX_PARTS, Answer, UnreadableError

DATA = Path(__file__).parents[3] / "data" / "tools"


def read(tool: str, file: str) -> Answer:
    """A file of tests/data/tools as the tool's output."""
    return TOOLS[tool].read((DATA / file).read_text(encoding="utf-8"))


def test_perftest_tells_the_largest_size_in_bytes_per_second_and_the_typical_time() -> None:
    assert read("ib_write_bw", "ib_write_bw.txt").figures[""] == pytest.approx(92.39 / 8)
    assert read("ib_write_lat", "ib_write_lat.txt").figures[""] == 1.47
    in_mib = (
        "#bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]\n 65536 1000 9.9 1000 1.0\n"
    )
    assert TOOLS["ib_write_bw"].read(in_mib).figures[""] == pytest.approx(1.048576)


def test_nvbandwidth_tells_the_lowest_of_each_gpu_without_itself() -> None:
    found = read("nvbandwidth", "nvbandwidth.txt").figures
    assert len(found) == 16
    assert found["host_to_device_memcpy_ce GPU 6"] == 31.07 and found["host_to_device_memcpy_ce GPU 0"] == 55.64
    assert found["device_to_device_memcpy_read_ce GPU 2"] == 395.07
    old = "Running device_to_device_memcpy_read_ce.\nmemcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
    old += "          0         1\n0      0.00    264.36\n1    264.60      0.00\n"
    assert TOOLS["nvbandwidth"].read(old).figures == {
        "device_to_device_memcpy_read_ce GPU 0": 264.36,
        "device_to_device_memcpy_read_ce GPU 1": 264.60,
    }


@pytest.mark.parametrize("word", ["0.00", "-31.07", "nan", "inf"])
def test_a_part_for_which_no_figure_but_such_a_number_is_printed_is_told(word: str) -> None:
    text = (DATA / "nvbandwidth.txt").read_text(encoding="utf-8")
    whole, dead = TOOLS["nvbandwidth"].read(text), TOOLS["nvbandwidth"].read(text.replace("31.07", word))
    assert dead.silent == {"host_to_device_memcpy_ce GPU 6": f"it prints {word}"}
    assert dead.figures.keys() == whole.figures.keys() - dead.silent.keys() and whole.silent == {}
    framed = "Transfer 2 │ 0.000 GB/s │ 0.4 ms │ 1 bytes │ G0 -> G0:4 -> G1\n"
    both = TOOLS["TransferBench"].read(f"{framed}{framed.replace('G0', 'G7').replace('0.000', '80.9')}")
    assert both.silent == {"G0": "it prints 0.000"} and both.figures == {"G7": 80.9}


def test_dcgm_tells_the_device_that_failed_and_why_in_both_forms() -> None:
    third = read("dcgmi", "dcgmi3.json")
    assert (third.failed, third.passed) == ({"GPU 3: GPU Memory": "Memory error: ECC DBE detected at addr 0x10"}, 3)
    fourth = read("dcgmi", "dcgmi4.json")
    assert (fourth.failed, fourth.passed) == ({"GPU 5: memory": "GPU memory is bad"}, 1)
    noise = "Warning: nv-hostengine is old\n" + (DATA / "dcgmi3.json").read_text()
    assert TOOLS["dcgmi"].read(noise) == third
    assert third.told == {"Targeted Stress: skipped": "GPU 3"} and fourth.told == {}


def test_what_dcgm_skips_passes_nothing() -> None:
    skipped = {"DCGM GPU Diagnostic": {"test_categories": [{"tests": [{"results": [{"status": "Skip"}]}]}]}}
    with pytest.raises(UnreadableError, match="printed no result"):
        TOOLS["dcgmi"].read(json.dumps(skipped))
    results: list[dict[str, object]] = [{"gpu_id": "0", "status": "Pass"}, {"gpu_id": "1", "status": "Skip"}]
    results.append({"gpu_id": "2", "status": "Warn", "warnings": ["hot"]})
    found = TOOLS["dcgmi"].read(json.dumps({"tests": [{"name": "PCIe", "results": results}]}))
    assert (found.passed, found.failed, found.silent) == (1, {}, {})
    assert found.told == {"PCIe: skipped": "GPU 1", "PCIe: warn: measured, not judged": "GPU 2 hot"}


def test_rvs_tells_figures_and_its_own_verdicts_also_in_colour() -> None:
    found = read("rvs", "rvs.txt")
    assert found.figures == {
        "gst-2061Tflops-8K8K16K-trig-fp8] [GPU:: 16161": 3530305,
        "gst-2061Tflops-8K8K16K-trig-fp8] [GPU:: 2 - 9354 - 0000:63:00.0": 1530305,
    }
    assert found.passed == 2
    assert found.failed == {"gst-2061Tflops-8K8K16K-trig-fp8] [GPU:: 2 - 9354 - 0000:63:00.0": "FALSE"}


def test_transferbench_tells_what_its_own_summary_has_as_the_lowest_of_each_row() -> None:
    text = (DATA / "transferbench.txt").read_text()
    rows = [line.split() for line in text.splitlines() if line.startswith("GPU 0")]
    lowest = {f"F{int(row[1])}": min(float(word) for word in row[2:10] if word != "N/A") for row in rows}
    assert read("TransferBench", "transferbench.txt").figures == lowest
    framed = "    Transfer 2     │ 80.886 GB/s  │   0.415 ms │   33554432 bytes  │  G0 -> G0:4 -> G0\n"
    assert TOOLS["TransferBench"].read(framed).figures == {"G0": 80.886}


def test_other_diagnostics_tell_what_is_broken_in_their_own_words() -> None:
    ascend = read("ascend-dmi", "ascend_dmi.txt")
    assert ascend.passed == 1 and ascend.failed.keys() == {"aicore", "hbm"}
    assert "Device 4: a timeout error occurred." in ascend.failed["aicore"]
    gaudi = read("hl_qual", "hl_qual.txt")
    assert gaudi.passed == 1
    assert gaudi.failed == {"Device: 0000:1a:00.0  Module 5": "power below the limit"}


def test_a_host_without_a_device_is_told_in_perftests_own_words() -> None:
    with pytest.raises(UnreadableError, match="Unable to find the Infiniband/RoCE device"):
        read("ib_write_bw", "ib_write_bw_without_device.txt")


WHOLE = [
    ("ib_write_bw", "ib_write_bw.txt"),
    ("ib_write_lat", "ib_write_lat.txt"),
    ("nvbandwidth", "nvbandwidth.txt"),
    ("dcgmi", "dcgmi4.json"),
    ("rvs", "rvs.txt"),
    ("TransferBench", "transferbench.txt"),
    ("ascend-dmi", "ascend_dmi.txt"),
    ("hl_qual", "hl_qual.txt"),
]


def answer_of(read_text: Callable[[str], Answer], text: str) -> Answer | None:
    """The answer, or None where there is none; anything else is an error of ours."""
    try:
        found = read_text(text)
    except UnreadableError as error:
        assert len(str(error)) < 400
        return None
    assert len(found.figures) <= MAX_PARTS and len(found.failed) <= MAX_PARTS
    assert all(value > 0 for value in found.figures.values())
    return found


@pytest.mark.parametrize(("tool", "file"), WHOLE)
def test_an_output_cut_off_anywhere_has_no_figure_that_the_whole_has_not(tool: str, file: str) -> None:
    text = (DATA / file).read_text(encoding="utf-8")
    words = set(text.split())
    scale = {"ib_write_bw": 8.0}.get(tool, 1.0)
    for end in range(0, len(text), 7):
        found = answer_of(TOOLS[tool].read, text[:end].rpartition("\n")[0])
        for value in found.figures.values() if found else ():
            assert any(f"{value * scale:.{digits}f}" in words for digits in range(4)), value


@pytest.mark.parametrize("tool", TOOLS)
@given(text=st.text(max_size=300))
def test_any_text_is_an_answer_or_none(tool: str, text: str) -> None:
    answer_of(TOOLS[tool].read, text)


@pytest.mark.parametrize("tool", TOOLS)
def test_binary_and_huge_outputs_are_soon_refused(tool: str) -> None:
    noise = random.Random(1).randbytes(1 << 18).decode("utf-8", "replace")
    for text in (noise, "[" * (1 << 20), "{" * 4000, "x: " * (1 << 20), "GPU(row) (column)\n" + "1 " * (1 << 20)):
        assert answer_of(TOOLS[tool].read, text) is None


def test_the_inspectors_collectives_are_read_by_size_and_only_those_of_the_host(tmp_path: Path) -> None:
    (tmp_path / "example-hostname-pid1.log").write_text((DATA / "inspector.jsonl").read_text() + '{"cut": \n\x00\xff')
    assert read_inspector(tmp_path, "example-hostname.site").figures == {"AllReduce 17179869184 bytes": 61974}
    assert read_inspector(tmp_path, "nanogpt-nccl-test-worker-0").figures == {"AllReduce 2360832 bytes": 5663}
    with pytest.raises(UnreadableError, match="no collective of n1 in the 1 files"):
        read_inspector(tmp_path, "n1")


def test_of_a_folder_that_hosts_share_each_reads_its_own_recent_files(tmp_path: Path) -> None:
    line = '{"header": {"rank": 0}, "metadata": {"hostname": "%s"}, "coll_perf": {"coll": "AllReduce", ' + (
        '"coll_msg_size_bytes": 8, "coll_exec_time_us": %d}}\n'
    )
    for number in range(300):
        (tmp_path / f"n2-pid{number}.log").write_text(line % ("n2", 20))
    for name, us, age in (("n1-pid1.log", 10, 60), ("n1-pid2.log", 90, 90_000)):
        (tmp_path / name).write_text(line % ("n1", us))
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    assert read_inspector(tmp_path, "n1.site", 600.0).figures == {"AllReduce 8 bytes": 10}
    assert read_inspector(tmp_path, "n1.site").figures == {"AllReduce 8 bytes": 50}


def test_the_inspectors_newer_files_tell_the_rank_once_and_the_shortest_median_counts(tmp_path: Path) -> None:
    for rank, times in ((0, (900, 500, 910)), (1, (300, 310, 9000))):
        lines = [{"header": {"rank": rank}, "metadata": {"hostname": "n1"}, "dump_stats": {}}]
        lines += [
            {"coll_perf": {"coll": "AllReduce", "coll_msg_size_bytes": 8, "coll_exec_time_us": time}} for time in times
        ]
        (tmp_path / f"rank{rank}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    os.mkfifo(tmp_path / "pipe.log")
    assert read_inspector(tmp_path, "n1").figures == {"AllReduce 8 bytes": 310}
