"""The questions of the seed, answered in words; and what a link should do."""

import json
import re

import pytest

from common.charts.sweep import sweep
from tests.training.benchmarks.network.synthetic import steps
from training.benchmarks.network.hosts import links
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.summing import answered
from training.benchmarks.network.reporting import answers
from training.benchmarks.network.slow_parts.analysis import analyse


@pytest.mark.parametrize(
    ("gbps", "verdict"),
    [
        (6.0, "not enough"),
        (12.5, "not enough"),  # 100 Gbit/s
        (20.0, "less than acceptable"),
        (25.0, "acceptable"),  # 200
        (50.0, "acceptable"),  # 400
        (100.0, "ideal"),  # 800
        (400.0, "ideal"),
    ],
)
def test_the_rule_for_training_at_scale(gbps: float, verdict: str) -> None:
    found, sentence = answers.training_at_scale(gbps, nnodes=4)
    assert found == verdict
    assert f"{gbps * 8:.4g} Gbit/s busbw between 4 hosts is {verdict} (" in sentence


def test_one_host_says_nothing_of_the_network() -> None:
    found, sentence = answers.training_at_scale(400.0, nnodes=1)
    assert found is None and "1 host was measured" in sentence


@pytest.mark.parametrize(
    ("share", "name"), [(1.2, "above"), (1.0, "fine"), (0.8, "fine"), (0.6, "below"), (0.4, "duplex"), (0.2, "below")]
)
def test_shares_of_the_advertised_speed(share: float, name: str) -> None:
    assert links.judge_share(share)[0] == name


def test_advertised_against_real() -> None:
    share, sentence = answers.expectation(160.0, "infiniband-hdr", 8)
    assert share == pytest.approx(0.8)
    assert "advertised 200 GB/s in one direction (8 x infiniband-hdr;" in sentence
    assert "measured 160 GB/s: 80 %: fine" in sentence
    assert "both directions?" in answers.expectation(20.0, 50.0, 1)[1]


def test_halves_are_held_against_a_link_between_hosts_by_the_cut() -> None:
    """A half of one host is faster than any link: no in-network reduction. Both ranks' messages of 10 GB/s count."""
    measured = steps("halves", 2, lambda group: 300.0 if len(group.hosts) == 1 else 10.0, noise=0, seed=1)
    measured = [{**step, "collective": "send_recv_two_way"} for step in measured]
    config = Config(pattern="halves", collective="send_recv_two_way", repeats=3, expected_link=25.0)
    figures, (sentence,) = answered(config, 2, measured)
    assert figures["measured_over_expected"] == pytest.approx(0.8) and "80 %: fine" in sentence
    found = analyse(measured, slow_percent=15)
    assert found is not None and found.bisection_gbps == pytest.approx(20.0)


def test_every_link_has_a_speed_and_a_source() -> None:
    known = links.links()
    assert len(known) > 10
    assert all(each.gbps > 0 and len(each.source) > 10 for each in known.values())
    rows = json.loads(links.TABLE.read_text())
    assert all(rows[name]["url"].startswith("https://") for name in known)
    assert known["infiniband-ndr"].verified
    assert "; not verified)" in answers.expectation(10.0, "nvlink-a100", 1)[1]
    assert known["infiniband-ndr"].gbps == 50.0 and known["nvlink-h100"].gbps == 450.0
    for each in known.values():
        if gbit := re.search(r"(\d+) Gbit/s", each.source):
            assert each.gbps == int(gbit[1]) / 8


def test_the_comparisons_in_words() -> None:
    times = [{"time_us": {"p50": 1000.0}, "world_size": 8, "collective": "all_gather", "size_bytes": 4_000_000_000}]
    other = {**times[0], "time_us": {"p50": 125.0}, "collective": "all_reduce"}
    ratio, sentence = answers.object_against_tensor([*times, other], "nccl")
    assert ratio == 8 and "by all_reduce of a tensor 125 us: 8.0x among 8 ranks over nccl" in sentence
    ratio, sentence = answers.one_against_many([other, *times], 1000)
    assert ratio == 8 and "one all_reduce of 4 GB" in sentence and "1000 of 4 MB" in sentence


def test_a_sweep_has_a_line_for_each_name_and_percent_of_the_limit_below() -> None:
    points = [(1 << power, power / 10) for power in range(3, 30)]
    chart = sweep("title", {"busbw": [*points, (0, 1.0)], "b": points[:1]}, advertised=12.5)
    assert chart is not None
    top, strip = chart.panels
    assert [len(series.y) for series in top.series] == [27, 1]
    assert [line.value for line in top.lines] == [12.5] and top.y.kind == "log" and strip.y.kind == "value"
    assert strip.series[0].y[-1] == pytest.approx(100 * 2.9 / 12.5)
    assert "2.9 GB/s, at 512M" in chart.sentence
    assert sweep("t", {"a": [(0, 1.0), (8, 1.0)]}) is None


def test_the_strip_shows_the_loss_of_a_tenth_against_a_baseline() -> None:
    chart = sweep("t", {"busbw": [(8, 0.9), (16, 1.8)]}, advertised=100.0, reference={8: 1.0, 16: 2.0, 32: 4.0})
    assert chart is not None
    (_, baseline), strip = chart.panels[0].series, chart.panels[1]
    assert baseline.tone == "muted" and list(baseline.y) == [1.0, 2.0, 4.0]
    assert list(strip.series[0].y) == pytest.approx([90.0, 90.0]) and strip.y.name == "% of baseline"
