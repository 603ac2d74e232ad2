"""Measurements under load and for long: overlap, congestion, soak, by four gloo ranks in one start."""

import json
from itertools import accumulate, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from protocol.perflog import Event, check_sequence
from tests.training.benchmarks.claimed import contradictions, unnoticed
from tests.training.benchmarks.driver.launch.launching import plain_processes, run
from tests.training.benchmarks.network.test_network_cases import CASES, records, settings, values
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.patterns.schedule import HostRanks
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.measuring import congestion as congestion_tool
from training.benchmarks.network.pytorch.measuring.congestion import roles
from training.benchmarks.network.pytorch.outcome import OUTCOME
from training.benchmarks.network.pytorch.suite import _work
from training.benchmarks.network.reporting.answers import congestion, overlap

RANKS = 4
RESIDENT = "tests.training.benchmarks.network.resident_workload"
# 200,000 iterations, as an idle machine makes them in 45 s, would be 6 MB as a list of numbers.
MOST_GROWTH_BYTES = 3 << 20


def test_the_overlap_is_the_hidden_share_of_the_shorter_time() -> None:
    assert overlap(10.0, 20.0, 20.0) == 1.0
    assert overlap(10.0, 20.0, 30.0) == 0.0
    assert overlap(10.0, 20.0, 25.0) == 0.5
    assert overlap(10.0, 20.0, 35.0) == -0.5, "they hinder each other"


def test_victims_and_aggressors_share_hosts_or_alternate() -> None:
    wide = [HostRanks(node_rank=node, name=f"h{node}", ranks=(2 * node, 2 * node + 1)) for node in range(2)]
    assert [group.ranks for group in roles(wide).groups] == [(0, 2), (1, 3)]
    single = [HostRanks(node_rank=node, name=f"h{node}", ranks=(node,)) for node in range(5)]
    assert [group.ranks for group in roles(single).groups] == [(0, 2, 4), (1, 3)]
    with pytest.raises(ValueError, match="needs 4 ranks or more"):
        roles(single[:3])


@pytest.mark.parametrize(
    ("hosts", "chosen", "said"),
    [
        ((1,), {"op": "avg", "dtype": "int8"}, "needs 4 ranks or more"),
        ((3,) * 32, {"op": "avg", "dtype": "int8"}, "cannot hold the sum of 64 ranks"),
    ],
    ids=["one rank", "64 victims of 96 ranks"],
)
def test_congestion_refuses_types_and_sizes_that_its_victims_cannot_measure(
    hosts: tuple[int, ...], chosen: dict[str, object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [*accumulate(hosts, initial=0)]
    lined_up = [
        HostRanks(node_rank=node, name=f"h{node}", ranks=tuple(range(*own))) for node, own in enumerate(pairwise(ends))
    ]
    monkeypatch.setattr(congestion_tool, "line_up", lambda group: lined_up)
    config = Config.model_validate({"tool": "congestion", **chosen})
    group = SimpleNamespace(backend="nccl", placement=SimpleNamespace(world_size=sum(hosts)))
    with pytest.raises(UnusableSettingsError, match=said):
        _work(cast("Any", SimpleNamespace(config=config, group=group)), Topology())


@pytest.mark.parametrize("tool", ["overlap", "soak"])
def test_tools_refuse_a_type_that_the_backend_cannot_reduce(tool: str) -> None:
    config = Config.model_validate({"tool": tool, "dtype": "float8_e5m2"})
    group = SimpleNamespace(backend="gloo", placement=SimpleNamespace(world_size=2))
    with pytest.raises(UnusableSettingsError, match="gloo cannot add 8-bit floating point"):
        _work(cast("Any", SimpleNamespace(config=config, group=group)), Topology())


def test_the_congestion_figure_is_the_ratio_of_times() -> None:
    alone = {"size_bytes": 8, "time_us": {"p50": 10.0, "p99": 20.0}}
    figures, (sentence,) = congestion([alone, alone | {"time_us": {"p50": 15.0, "p99": 100.0}}])
    assert (figures["congestion_p50"], figures["congestion_p99"]) == (1.5, 5.0)
    assert sentence.endswith("1.50 times, p99 5.00 times")


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each tool in a folder of its name."""
    folder = tmp_path_factory.mktemp("load")
    chosen: dict[str, dict[str, object]] = {
        "overlap": {"sizes": "64K,1M", "iterations": 3},
        "congestion": {"sizes": "8,64K", "iterations": 5},
        "soak": {"sizes": "8,64K", "iterations": 10, "duration": "2s"},
        "all_gather_object_vs_all_reduce": {"iterations": 2},
    }
    cases = {str(folder / tool): settings(tool=tool, warmup_iterations=1, **each) for tool, each in chosen.items()}
    options = plain_processes(RANKS)
    code, output = run(folder, options, [CASES, json.dumps(cases)], deadline_s=240)
    assert code == 0, output + (folder / "rank0.out.log").read_text()
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("tool", ["overlap", "congestion", "soak"])
def test_every_rank_keeps_the_rules_and_rank_0_has_the_figures(measured: Path, tool: str) -> None:
    for rank in range(RANKS):
        assert check_sequence(records(measured / tool, rank)) == []
    steps = values(measured / tool, Event.STEP_END)
    assert steps and all(step["correct"] == "pass" for step in steps)
    summary = values(measured / tool, Event.FINISHED)[0]
    assert {metric.name for metric in OUTCOME.metrics({"tool": tool})} <= summary.keys()
    assert summary["answer"]
    assert contradictions(measured / tool, "network", RANKS) == []
    assert unnoticed(measured / tool, "network", RANKS) == ["e2e_time"]


def test_all_reduce_is_measured_alone_and_beside_products(measured: Path) -> None:
    steps = values(measured / "overlap", Event.STEP_END)
    assert [step["variant"] for step in steps] == ["alone", "beside compute"] * 2
    assert all(float(str(step["compute_us"])) > 0 for step in steps[1::2])
    figures = values(measured / "overlap", Event.FINISHED)[0]["overlap"]
    assert isinstance(figures, dict) and figures.keys() == {"64K", "1M"}
    for alone, both, share in zip(steps[::2], steps[1::2], figures.values(), strict=True):
        times = [each["time_us"] for each in (alone, both)]
        medians = [float(str(each["p50"])) for each in times if isinstance(each, dict)]
        assert share == pytest.approx(overlap(medians[0], float(str(both["compute_us"])), medians[1]))


def test_the_victims_are_measured_with_and_without_traffic(measured: Path) -> None:
    steps = values(measured / "congestion", Event.STEP_END)
    assert [step["variant"] for step in steps] == ["alone", "beside traffic"] * 2
    assert all(step["ranks"] == [0, 2] and step["group"] == "victims" for step in steps)
    assert float(str(values(measured / "congestion", Event.FINISHED)[0]["congestion_p50"])) > 0


def test_a_soak_keeps_every_iteration(measured: Path) -> None:
    summary = values(measured / "soak", Event.FINISHED)[0]
    found = summary["soak"]
    assert isinstance(found, dict) and found.keys() == {"8", "64K"}
    columns = {path.stem: np.load(path) for path in (measured / "soak" / "iterations").iterdir()}
    for name, size in (("8", 8), ("64K", 1 << 16)):
        figures = found[name]
        assert isinstance(figures, dict)
        own = columns["time_us"][columns["size_bytes"] == size]
        assert len(own) == figures["iterations"] and len(own) % 10 == 0 and len(own) > 0
        assert float(own.max()) == pytest.approx(float(str(figures["max_us"])), rel=1e-5)
        assert float(str(figures["p50_us"])) <= float(str(figures["p99_us"])) <= float(str(figures["max_us"]))
    assert columns["at_s"].max() >= 1.0


def test_what_a_soak_found_follows_from_what_it_reported(measured: Path) -> None:
    """A histogram that its reports do not add up to is a contradiction, however well the jitter fits to it."""
    found = values(measured / "soak", Event.FINISHED)[0]["soak"]
    assert isinstance(found, dict) and isinstance(found["8"], dict)
    own = found["8"]
    bins = [[8.0, own["iterations"]]]
    lie = {**found, "8": {**own, "histogram": bins}}
    (said,) = contradictions(measured / "soak", "network", RANKS, soak=lie)
    assert said.startswith("soak.8.histogram[0][") and said.endswith(" by the rows of its log"), said
    for name in ("iterations", "p50_us", "p99_us", "p999_us", "max_us"):
        lie = {**found, "8": {**own, name: 2 * float(str(own[name]))}}
        (said,) = contradictions(measured / "soak", "network", RANKS, soak=lie)
        assert said.startswith(f"soak.8.{name} is "), said


def test_the_ratio_of_the_original_method_stands_beside_ours(measured: Path) -> None:
    summary = values(measured / "all_gather_object_vs_all_reduce", Event.FINISHED)[0]
    assert float(str(summary["object_over_tensor_original"])) > 0 and float(str(summary["object_over_tensor"])) > 0
    assert "without barrier and reading, as the original times it" in str(summary["answer"])


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_the_resident_memory_of_a_soak_does_not_grow_with_its_duration(tmp_path: Path) -> None:
    """Of each rank after a quarter and at the end of 60 s: an iteration that is kept would cost 8 bytes or more."""
    options = plain_processes(2)
    chosen = settings(tool="soak", duration="60s", sizes="8", iterations=50, warmup_iterations=1)
    code, output = run(tmp_path, options, [RESIDENT, str(tmp_path), *chosen], deadline_s=240)
    assert code == 0, output
    for rank in range(2):
        resident = json.loads((tmp_path / f"resident{rank}.json").read_text())["bytes"]
        early, late = resident[len(resident) // 4], resident[-1]
        assert late - early < MOST_GROWTH_BYTES, f"rank {rank}: {early} bytes after a quarter, {late} at the end"
