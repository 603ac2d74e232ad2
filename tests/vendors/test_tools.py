"""Probes of tools: what documents and FlagPerf print of each, tools that fail, and nonsense.

tests/data/vendors has outputs as documents of the vendors, of Paddle, vLLM, Ray, IBM and FlagPerf show them; that of
mthreads-gmi is put together of the names and values of its JSON. No tool was run on a device.
"""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest

import vendors
from tests.imports import ROOT
from vendors.base import AcceleratorSample, HealthReader, ProbeUnavailable
from vendors.tools import DEADLINE_S, Tool, ToolProbe, devices_in, number_of, pattern_of

DATA = ROOT / "tests/data/vendors"
MIB = 1 << 20
# Columns of FlagPerf's monitors, words counted from 1, of the line that has a word: temperature, power, memory used and
# size, utilization. Of metax and dcu it logs the whole text.
FLAGPERF = {
    "iluvatar": ("ixsmi", "Default", (3, 5, 9, 11, 13)),
    "cambricon": ("cnmon", "Default", (3, 4, 9, 11, None)),
    "metax": ("mx-smi", "Available", (2, 3, 8, None, None)),
    "dcu": ("hy-smi", "Normal", (2, 3, None, None, 7)),
}
FIELDS = ("temperature_c", "power_w", "memory_used_mib", "memory_total_mib", "utilization_percent")
FILES = {vendor: file for vendor, (file, _, _) in FLAGPERF.items()} | {
    "kunlunxin": "xpu-smi",
    "mthreads": "mthreads-gmi",
    "ascend": "npu-smi",
    "gaudi": "hl-smi",
}


def tool_of(vendor: str) -> Tool:
    found: Tool = import_module(f"vendors.{vendor}.adapter").TOOL
    return found


def printed(file: str) -> str:
    return (DATA / f"{file}.txt").read_text(encoding="utf-8")


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Puts a tool on the PATH that runs a shell script; its file may be written anew."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def put(name: str, script: str) -> Path:
        path = tmp_path / name
        beside = tmp_path / f"{name}.new"
        beside.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        beside.chmod(0o755)
        beside.replace(path)
        return path

    return put


def shows(file: str) -> str:
    return f"cat '{DATA / file}.txt'"


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("rocm-smi-dtk", AcceleratorSample(index=1, utilization_percent=17, temperature_c=29, power_w=39)),
        ("rocm-smi-dtk-clocks", AcceleratorSample(index=1, utilization_percent=5, temperature_c=49, power_w=24,
                                                  sm_clock_mhz=1319, memory_clock_mhz=800)),
    ],
)  # fmt: skip
def test_an_older_driver_of_hygon_is_read_by_its_own_tool_unless_the_newer_one_is_there(
    file: str, expected: AcceleratorSample, tool: Callable[[str, str], Path]
) -> None:
    tool("rocm-smi", shows(file))
    tool("hy-smi", shows("hy-smi")).unlink()
    probe = vendors.load("dcu").open_probe()
    assert (len(probe.sample()), probe.sample()[1]) == (2, expected)
    probe.close()
    tool("rocm-smi", "echo 'GPU  Temp  AvgPwr  SCLK'")  # AMD's
    with pytest.raises(ProbeUnavailable, match="no heading 'DCU '"):
        vendors.load("dcu").open_probe()
    tool("hy-smi", shows("hy-smi"))
    probe = vendors.load("dcu").open_probe()
    assert probe.sample()[1].temperature_c == 51
    probe.close()


@pytest.mark.parametrize("vendor", FLAGPERF)
def test_the_numbers_are_those_of_flagperf_s_columns(vendor: str) -> None:
    file, word, columns = FLAGPERF[vendor]
    text = printed(file)
    rows = [line.split() for line in text.splitlines() if word in line]
    found = devices_in(tool_of(vendor), text)
    assert len(found) == len(rows) == 2
    for device, row in zip(found, rows, strict=True):
        for name, column in zip(FIELDS, columns, strict=True):
            if column is not None:
                word_there = row[column - 1].split("/")[0].rstrip("CWMiB%°")
                assert number_of(device, name) == (None if word_there in ("N", "") else float(word_there))


@pytest.mark.parametrize(
    ("vendor", "expected"),
    [
        ("iluvatar", AcceleratorSample(index=1, utilization_percent=0, memory_used_bytes=116 * MIB,
                                       memory_total_bytes=32768 * MIB, temperature_c=30, power_w=93,
                                       sm_clock_mhz=1500, memory_clock_mhz=1600)),
        ("cambricon", AcceleratorSample(index=1, utilization_percent=0, memory_used_bytes=0,
                                        memory_total_bytes=20638 * MIB, temperature_c=32, power_w=107)),
        ("kunlunxin", AcceleratorSample(index=1, utilization_percent=0, memory_used_bytes=100 * MIB,
                                        memory_total_bytes=98304 * MIB, temperature_c=37, power_w=86,
                                        ecc_uncorrected=0)),
        ("mthreads", AcceleratorSample(index=1, utilization_percent=3, memory_used_bytes=MIB,
                                       memory_total_bytes=81920 * MIB, temperature_c=45, power_w=109.51)),
        ("metax", AcceleratorSample(index=1, utilization_percent=0, memory_used_bytes=666 * MIB,
                                    memory_total_bytes=65536 * MIB, temperature_c=37, power_w=33)),
        ("dcu", AcceleratorSample(index=1, utilization_percent=0, temperature_c=51, power_w=29)),
        ("gaudi", AcceleratorSample(index=1, utilization_percent=0, memory_used_bytes=672 * MIB,
                                    memory_total_bytes=131072 * MIB, temperature_c=37, power_w=226,
                                    ecc_uncorrected=0)),
        ("ascend", AcceleratorSample(index=1, utilization_percent=11, memory_used_bytes=35761 * MIB,
                                     memory_total_bytes=65536 * MIB, temperature_c=49, power_w=143.2)),
    ],
)  # fmt: skip
def test_the_documented_output_of_each_vendor_is_a_sample_in_the_units_of_all(
    vendor: str, expected: AcceleratorSample, tool: Callable[[str, str], Path]
) -> None:
    tool(tool_of(vendor).command[0], shows(FILES[vendor]))
    probe = vendors.load(vendor).open_probe()
    try:
        first, second = probe.sample()
        assert (first.index, first.error, second) == (0, None, expected)
        told = probe.describe()
        assert (told["driver"] != "") == (vendor != "dcu")  # hy-smi prints none
        assert told["text"] == printed(FILES[vendor])[:4000]
        assert [device["index"] for device in told["devices"]] == [0, 1]
    finally:
        probe.close()


def test_a_processor_with_two_chips_is_two_devices_and_an_older_npu_smi_is_read() -> None:
    ascend = tool_of("ascend")
    chips = devices_in(ascend, printed("npu-smi-A3"))
    assert [(each["pci"], number_of(each, "power_w")) for each in chips] == [
        ("0000:9C:00.0", 162.8),
        ("0000:9E:00.0", None),
    ]
    (older,) = devices_in(ascend, printed("npu-smi-910A"))
    assert (number_of(older, "power_w"), number_of(older, "memory_used_mib"), number_of(older, "memory_total_mib")) == (
        None,
        861,
        21534,
    )


def test_the_text_of_a_tool_without_a_table_is_kept(tool: Callable[[str, str], Path]) -> None:
    tool("tsm_smi", "echo TSM-SMI; echo anything")
    probe = vendors.load("tsingmicro").open_probe()
    assert (probe.sample(), probe.describe()["text"]) == ([], "TSM-SMI\nanything\n")
    probe.close()


@pytest.mark.parametrize(
    ("before", "after"), [("116MiB", "116MB"), ("93W", "93000mW"), ("30C", "86F"), ("1500MHz", "1.5GHz")]
)
def test_a_number_in_another_unit_is_not_read(before: str, after: str) -> None:
    text = printed("ixsmi")
    assert text.count(before)
    assert len(devices_in(tool_of("iluvatar"), text.replace(before, after))) < 2


def test_a_heading_with_another_unit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no heading 'Power\(W\)'"):
        devices_in(tool_of("ascend"), printed("npu-smi").replace("Power(W)", "Power(mW)"))


@pytest.mark.parametrize(
    ("field", "text"),
    [("temperature_c", "999C"), ("utilization_percent", "101%"), ("power_w", "-3W"), ("memory_total_mib", "0MiB")],
)
def test_a_value_that_no_sound_device_has_is_none(field: str, text: str) -> None:
    assert number_of({field: text}, field) is None


def test_a_table_with_an_unknown_field_is_refused() -> None:
    with pytest.raises(ValueError, match="'temprature_c' is no field of a table; allowed: index, name, pci"):
        pattern_of("| {temprature_c:C} |")


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo no such device >&2; exit 3", "ixsmi: ended with 3: no such device"),
        ("echo gibberish", "ixsmi prints no device in the form that is known: 'gibberish"),
        ("head -c 3000 /dev/urandom", "ixsmi prints no device in the form that is known"),
        ("", "ixsmi prints no device"),
    ],
)
def test_a_tool_that_fails_or_prints_nonsense_is_no_probe(
    script: str, reason: str, tool: Callable[[str, str], Path]
) -> None:
    tool("ixsmi", script)
    with pytest.raises(ProbeUnavailable, match=reason):
        vendors.load("iluvatar").open_probe()


@pytest.mark.parametrize("vendor", [*FILES, "tsingmicro"])
def test_a_host_without_the_tool_says_so(vendor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ProbeUnavailable, match=tool_of(vendor).command[0]):
        vendors.load(vendor).open_probe()


def test_a_tool_that_hangs_is_ended(tool: Callable[[str, str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vendors.tools.DEADLINE_S", 0.2)
    assert DEADLINE_S > 0.2
    tool("ixsmi", "exec sleep 100")
    with pytest.raises(ProbeUnavailable, match=r"did not end in 0.2 s"):
        vendors.load("iluvatar").open_probe()


def errors_after(probe: ToolProbe, wanted: str) -> list[str | None]:
    """The errors of the samples, as soon as one has the words."""
    until = time.monotonic() + 200
    while not any(wanted in (sample.error or "") for sample in probe.sample()):
        assert time.monotonic() < until, [sample.error for sample in probe.sample()]
        time.sleep(0.02)
    return [sample.error for sample in probe.sample()]


def test_a_device_that_the_tool_no_longer_lists_is_lost_alone_and_one_that_comes_back_is_read(
    tool: Callable[[str, str], Path],
) -> None:
    tool("ixsmi", shows("ixsmi"))
    probe = ToolProbe(tool_of("iluvatar"), every_s=0.02)
    tool("ixsmi", f"{shows('ixsmi')} | grep -v 00000000:13:00.0")
    assert errors_after(probe, "lists it") == ["ixsmi no longer lists it", None]
    assert probe.sample()[1].power_w == 93
    tool("ixsmi", "exit 1")
    assert errors_after(probe, "ended with 1") == ["ixsmi: ended with 1: "] * 2
    tool("ixsmi", shows("ixsmi"))
    until = time.monotonic() + 200
    while any(sample.error for sample in probe.sample()) and time.monotonic() < until:
        time.sleep(0.02)
    assert [sample.error for sample in probe.sample()] == [None, None]
    probe.close()


def test_the_health_of_an_ascend_is_told(tool: Callable[[str, str], Path]) -> None:
    tool("npu-smi", shows("npu-smi"))
    probe = vendors.load("ascend").open_probe()
    assert isinstance(probe, HealthReader)
    assert [health.states for health in probe.health()] == [{"alarm": 0}, {"alarm": 1}]
    probe.close()


def test_the_monitor_samples_a_host_by_its_tool(tool: Callable[[str, str], Path], tmp_path: Path) -> None:
    tool("ixsmi", shows("ixsmi"))
    logs = tmp_path / "logs"
    logs.mkdir()
    argv = [sys.executable, "-m", "monitors", "--log_dir", str(logs), "--vendor", "iluvatar", "--max_seconds", "1"]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=200)
    rows = (logs / "iluvatar_monitor.log").read_text(encoding="utf-8").splitlines()
    assert any(row.split("\t")[1:] == ["1", "30.0", "93.0", "116", "32768", "0.0"] for row in rows), rows
    assert "Iluvatar BI-V150" in json.dumps(json.loads((logs / "sys_info.json").read_text(encoding="utf-8")))


def test_torch_npu_has_each_name_that_ranks_ask_of_it() -> None:
    """The names are torch_npu.npu.__all__ of the version of the image."""
    names = set(printed("torch_npu-2.12.0").split())
    asked = set(re.findall(r"self\.module\.([a-z_A-Z]+)", (ROOT / "vendors/device.py").read_text(encoding="utf-8")))
    assert len(asked) > 10 and asked <= names
