"""Bandwidths, times and sizes as text."""

from __future__ import annotations

import io

import pytest

from common.units import bandwidth_bps, format_bandwidth, size_bytes, time_seconds
from simulation.common.dialect import Repair, header
from simulation.common.progress import StepProgress, watched


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
    ("text", "size"),
    [("16M", 1 << 24), ("16MiB", 1 << 24), ("4096", 4096), ("1.5k", 1536), (f"{2**60 + 1}", 2**60 + 1)],
)
def test_sizes(text: str, size: int) -> None:
    assert size_bytes(text) == size


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


@pytest.mark.parametrize("text", ["big", "0", "-1M", "0.3", "1.0001k", "16Mbps"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="such as 16M"):
        size_bytes(text)


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
    monkeypatch.setattr("simulation.common.progress.time.monotonic", lambda: now[0])
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
    monkeypatch.setattr("simulation.common.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr("simulation.common.progress.STEP", 3)
    taken = []
    for item in watched("lines", 8, "abcdefgh"):
        taken.append(item)
        now[0] += 1
    assert taken == [*"abcdefgh"]
    assert capsys.readouterr().err == "lines: 3 of 8 (38 %)\n"


def test_a_header_names_each_repair() -> None:
    assert header([]) == "dialect clusterdyno: nothing repaired"
    repairs = [Repair("pp", "divides by a bandwidth"), Repair("gb", "1e9 bytes")]
    assert header(repairs) == "dialect clusterdyno: repaired pp (divides by a bandwidth); gb (1e9 bytes)"
