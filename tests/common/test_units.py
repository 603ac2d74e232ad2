"""Bandwidths, times and sizes as text."""

import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.progress import StepProgress, watched
from common.units import (
    MAX_SIZES,
    bandwidth_bps,
    format_bandwidth,
    format_size,
    parse_sizes,
    rate_gbps,
    rates_taken,
    size_bytes,
    time_seconds,
)
from simulation.common.dialect import Repair, header


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("400Gbps", 4e11),
        ("2400 Gbps", 2.4e12),
        ("1.8Tb/s", 1.8e12),
        ("50GBps", 4e11),
        ("1KiBps", 8192),
        ("1e3bps", 1e3),
    ],
)
def test_bandwidths(text: str, bits: float) -> None:
    assert bandwidth_bps(text) == bits


@pytest.mark.parametrize(
    ("text", "seconds"), [("0.5us", 5e-7), ("0.000025ms", 2.5e-8), ("500ns", 5e-7), ("0s", 0), ("1min", 60)]
)
def test_times(text: str, seconds: float) -> None:
    assert time_seconds(text) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    "text", ["fast", "", "400", "Gbps", "-1Gbps", "0Gbps", "400gbps", "nanGbps", "infGbps", "4 00Gbps"]
)
def test_what_is_no_bandwidth(text: str) -> None:
    with pytest.raises(ValueError, match="such as 400Gbps"):
        bandwidth_bps(text)


@pytest.mark.parametrize("text", ["soon", "1", "-1ms", "1 hour", "nans"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"such as 0\.0005ms"):
        time_seconds(text)


@pytest.mark.parametrize(
    ("text", "rate"), [("360", 360.0), ("48.5", 48.5), ("450GBps", 450.0), ("3600Gbps", 450.0), ("400Gb/s", 50.0)]
)
def test_a_rate_with_a_unit_and_one_in_gigabytes_are_the_same(text: str, rate: float) -> None:
    assert rate_gbps(text) == rate


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "inf", "nan", "450GB", "0Gbps", "4 5"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="a positive number"):
        rate_gbps(text)


def test_what_a_number_without_a_unit_was_taken_for_is_said() -> None:
    given = {"-nv": "360", "-nic": "400Gbps", "-x": None}
    assert rates_taken(given) == "\n-nv 360 is 360 GB/s, 2880 Gbps"


def test_bandwidths_for_people() -> None:
    assert [format_bandwidth(bits) for bits in (4e11, 1.8e12, 2.5e6, 900, 1e3)] == [
        "400Gbps",
        "1.8Tbps",
        "2.5Mbps",
        "900bps",
        "1kbps",
    ]


def test_progress_is_silent_for_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("common.progress.time.monotonic", lambda: now[0])
    shown = io.StringIO()
    with StepProgress("links", 10, shown) as steps:
        now[0] += 1.9
        steps.advance(2)
        assert not shown.getvalue()
        now[0] += 0.2
        steps.advance(3)
        steps.advance()
    assert shown.getvalue() == "links: 5 of 10 (50 %)\n"


def test_watched_items_are_all_there_and_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [100.0]
    monkeypatch.setattr("common.progress.time.monotonic", lambda: now[0])
    taken = []
    for item in watched("lines", 8, "abcdefgh", step=3):
        taken.append(item)
        now[0] += 1
    assert taken == [*"abcdefgh"]
    assert capsys.readouterr().err == "lines: 3 of 8 (38 %)\n"


def test_a_header_names_each_repair() -> None:
    assert header([]) == "dialect clusterdyno: nothing repaired"
    repairs = [Repair("pp", "divides by a bandwidth"), Repair("gb", "1e9 bytes")]
    assert header(repairs) == "dialect clusterdyno: repaired pp (divides by a bandwidth); gb (1e9 bytes)"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("8", 8),
        ("1K", 1024),
        ("4k", 4096),
        ("1M", 1 << 20),
        ("2 G", 2 << 30),
        ("1MiB", 1 << 20),
        ("64B", 64),
        ("1KiB", 1024),
        ("1m", 1 << 20),
        ("1.5G", 3 << 29),
        ("1.5k", 1536),
        ("2t", 2 << 40),
        ("1e3", 1000),
        ("0.1e1K", 1024),
        (f"{2**60 + 1}", 2**60 + 1),
    ],
)
def test_a_size(text: str, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "M", "-1", "big", "0.3", "1.0001k", "16Mbps", "1e-3", "nan", "0", "0K", "1 2", "1e999"],
)
def test_what_is_no_size_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        size_bytes(text)
    with pytest.raises(ValueError, match=f"^{re.escape(repr(text.strip()))} .*a size such as|names more|ends below"):
        parse_sizes(f"64,{text}")


@pytest.mark.parametrize("text", ["1KB", "16mb", "2GB", "1.5Gb"])
def test_decimal_units_are_refused_because_they_are_ambiguous(text: str) -> None:
    with pytest.raises(ValueError, match=r"1000 or 1024 is meant; write [\d.]+[KmG] or"):
        size_bytes(text)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("1M", [1 << 20]),
        ("8..64 x2", [8, 16, 32, 64]),
        ("8..64x2", [8, 16, 32, 64]),
        ("8..64", [8, 16, 32, 64]),
        ("8 .. 100 x4", [8, 32]),
        ("1K..4K +1K", [1024, 2048, 3072, 4096]),
        ("4K, 8..16, 1M", [4096, 8, 16, 1 << 20]),
        ("1..1", [1]),
        ("1.5K..6K", [1536, 3072, 6144]),
        ("1K..2K +0.5K", [1024, 1536, 2048]),
        ("8..64 *8", [8, 64]),
    ],
)
def test_lists_and_ranges(text: str, sizes: list[int]) -> None:
    assert list(parse_sizes(text)) == sizes


def test_the_full_range_of_a_gpu() -> None:
    sizes = parse_sizes("8..16G x2")
    assert (sizes[0], sizes[-1], len(sizes)) == (8, 16 << 30, 32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("64..8", "ends below its begin"),
        ("8..64 x1", "a factor of 1"),
        ("8..64 x", "is not a size"),
        ("8..64 -2", "is not a size"),
        ("8..", "is not a size"),
        ("8,,16", "'' is not a size"),
        ("1..16G +1", f"more than {MAX_SIZES} sizes"),
    ],
)
def test_a_wrong_part_is_named(text: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse_sizes(text)


@given(st.integers(1, 1 << 45))
def test_a_formatted_size_is_read_back(size: int) -> None:
    assert size_bytes(format_size(size)) == size


def test_the_shortest_exact_form() -> None:
    assert [format_size(size) for size in (8, 1536, 1 << 20, 3 << 30, 1025)] == ["8", "1536", "1M", "3G", "1025"]
