from pathlib import Path

import pytest

from common.errors import InputProblems
from protocol.case_config import load_case_config, parse_override
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.outcome import OUTCOME

ROOT = Path(__file__).parents[4]


def test_sizes_are_read_and_a_number_is_a_size() -> None:
    assert load_case_config(Config, None, {"sizes": "4K, 1M..4M"}).size_list == (4096, 1 << 20, 1 << 21, 1 << 22)
    assert load_case_config(Config, None, {"sizes": 64}).size_list == (64,)
    assert load_case_config(Config, None, dict([parse_override("sizes=100,4000")])).size_list == (100, 4000)
    assert load_case_config(Config, None, {"sizes": [8, "4K..8K"]}).size_list == (8, 4096, 8192)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"sizes": "1MB"}, "sizes = '1MB': '1MB' leaves open"),
        ({"sizes": "1..8"}, "sizes = '1..8': 1 bytes are not a whole number of float32 elements of 4 bytes"),
        ({"sizes": True}, "sizes = True: expected text"),
        ({"sizes": [8, True]}, "sizes = .8, True.: expected text"),
        ({"sizes": []}, "sizes = ..: expected text"),
        ({"dtype": "fp32"}, "dtype = 'fp32': expected one of 'float64', 'float32'"),
        ({"in_place": False}, "in_place = False: torch.distributed.all_reduce works in place only"),
        ({"in_place": True, "collective": "gather"}, "in_place = True: gather needs an input and an output"),
        ({"in_place": True, "collective": "barrier"}, "in_place = True: a barrier has no buffers"),
        ({"sizes": "8", "collective": "barrier"}, "sizes = '8': a barrier sends nothing"),
        ({"cuda_graph": True, "collective": "barrier"}, "cuda_graph = True: a barrier and the object tools"),
        ({"tool": "all_reduce_bench", "collective": "gather"}, "collective = 'gather': tool 'all_reduce_bench'"),
        ({"tool": "all_reduce_latency_comp", "sizes": "8..64"}, "sizes = '8..64': .* sends one size"),
        ({"tool": "all_gather_object_vs_all_reduce", "sizes": "8"}, "sizes = '8': .* a flag of one element"),
        ({"tool": "all_gather_object_vs_all_reduce", "dtype": "int8"}, "dtype = 'int8': .* an int32 flag"),
        ({"tool": "all_reduce_bench", "pattern": "pairs"}, "pattern = 'pairs': .* runs once among all ranks"),
        ({"tool": "all_reduce_bench", "repeats": 3}, "repeats = 3: .* runs once among all ranks"),
        ({"ranks_per_host": "one"}, "ranks_per_host = 'one': only pairs, halves, k_batch and adaptive"),
        ({"op": "max", "collective": "all_gather"}, "op = 'max': only all_reduce, reduce, reduce_scatter reduce"),
        ({"root": 1}, "root = 1: only reduce, broadcast, gather, scatter have a root"),
        ({"in_place": "both"}, "in_place = 'both': torch knows one form of all_reduce"),
        ({"aggregate": 4, "collective": "barrier"}, "aggregate = 4: a barrier is waited for on the host"),
        ({"timing": "nccl-tests", "tool": "all_reduce_latency_comp"}, "timing = .*measures in its own way"),
        ({"after_compute_ms": [0]}, "after_compute_ms"),
        ({"after_compute_ms": [1], "pattern": "pairs"}, "pattern = 'pairs': groups are compared by one time each"),
        ({"root": "all", "collective": "gather", "pattern": "rail"}, "pattern = 'rail': .* set one root"),
        (
            {"tool": "soak", "collective": "all_gather", "in_place": "both"},
            "in_place = 'both': tool 'soak' measures one",
        ),
        ({"tool": "soak", "collective": "gather", "root": "all"}, "root = 'all': tool 'soak' measures one root"),
        ({"duration": "6h"}, "duration = '6h': only the tool soak has a duration"),
        ({"tool": "soak", "duration": "6 hours"}, "duration = '6 hours': '6 hours' is no duration"),
        ({"tool": "overlap", "collective": "gather"}, "collective = 'gather': tool 'overlap' measures its own"),
        ({"search": "links"}, "search = 'links': only the pattern adaptive searches"),
        ({"pattern": "pairs", "batch_hosts": 4}, "batch_hosts = 4: only the pattern k_batch has batches"),
        ({"dtype": "int8", "collective": "barrier"}, "dtype = 'int8': a barrier sends nothing"),
        ({"tool": "all_gather_object_vs_all_reduce", "in_place": True}, "in_place = True: .* its own buffers"),
        ({"slow_percent": 20.0}, "slow_percent = 20.0: the pattern all has no groups to compare"),
        ({"late_percent": 20.0}, "late_percent = 20.0: the pattern all has no groups to compare"),
        ({"pattern": "pairs", "sizes": "64K", "slow_percent": 20.0}, "slow_percent = 20.0: .* sizes above 64K"),
        ({"pattern": "each", "collective": "barrier", "slow_percent": 20.0}, "slow_percent = 20.0: .* sizes above 64K"),
        ({"pattern": "pairs", "sizes": "1M", "late_percent": 20.0}, "late_percent = 20.0: .* sizes up to 64K"),
        ({"tool": "all_reduce_latency_comp", "expected_link": 1.0}, "expected_link = 1.0: .* compares two ways"),
        ({"collective": "barrier", "expected_link": 1.0}, "expected_link = 1.0: a barrier has no bandwidth"),
        ({"expected_links": 8}, "expected_links = 8: counts expected_link, which is not set"),
        ({"expected_link": "infiniband-ndx"}, "is no link of links.json; did you mean 'infiniband-ndr'"),
        ({"expected_link": -1.0}, "expected_link = -1.0: -1.0 is no speed"),
        ({"iterations": 0}, "iterations = 0: expected a whole number of at least 1"),
        ({"collective": "allreduce"}, "collective = 'allreduce': .*'all_reduce'"),
    ],
)
def test_a_wrong_setting_is_named(overrides: dict[str, object], expected: str) -> None:
    with pytest.raises(InputProblems, match=expected):
        load_case_config(Config, None, overrides)


@pytest.mark.parametrize(
    ("overrides", "in_place"),
    [
        ({}, True),
        ({"collective": "broadcast"}, True),
        ({"collective": "all_gather"}, False),
        ({"collective": "all_gather", "in_place": True}, True),
        ({"collective": "all_to_all"}, False),
        ({"collective": "barrier"}, False),
    ],
)
def test_in_place_is_what_the_collective_does_by_itself(overrides: dict[str, object], in_place: bool) -> None:
    config = load_case_config(Config, None, overrides)
    assert config.forms == (in_place,)
    assert config.collective != "barrier" or config.size_list == (0,)


def test_thresholds_that_have_an_effect_are_taken() -> None:
    chosen = {"pattern": "pairs", "sizes": "8, 1M", "slow_percent": 20.0, "late_percent": 20.0}
    assert load_case_config(Config, None, chosen).slow_percent == 20.0
    barriers = {"pattern": "pairs", "collective": "barrier", "late_percent": 20.0}
    assert load_case_config(Config, None, barriers).late_percent == 20.0


@pytest.mark.parametrize(
    ("overrides", "nnodes", "nproc", "expected"),
    [
        ({"pattern": "pairs"}, 1, 8, "pattern 'pairs' needs 2 hosts or more, found 1"),
        ({"pattern": "adaptive"}, 3, 8, "pattern 'adaptive' needs 4 hosts or more, found 3; set 'pairs'"),
        ({"collective": "gather", "root": 8}, 1, 8, "root = 8: there is a group of 8 ranks, whose places are 0 to 7"),
        ({"collective": "hypercube"}, 2, 3, "'hypercube' needs a power of two of ranks, and there is a group of 6"),
        ({"collective": "hypercube"}, 2, 4, None),
        ({"collective": "send_recv"}, 1, 1, "pattern 'all' makes one of 1 here"),
        ({"collective": "send_recv", "pattern": "rail"}, 1, 8, "pattern 'rail' makes one of 1 here"),
        ({"tool": "nccl_tests"}, 2, 8, "tool 'nccl_tests' runs on 1 host"),
        ({"collective": "send_recv", "pattern": "rail"}, 2, 1, None),
        ({}, 1, 1, None),
    ],
)
def test_what_so_few_hosts_or_ranks_cannot_do_is_known_before(
    overrides: dict[str, object], nnodes: int, nproc: int, expected: str | None
) -> None:
    found = load_case_config(Config, None, overrides).refusal(nnodes=nnodes, nproc=nproc)
    assert found is None if expected is None else found is not None and expected in found


@pytest.mark.parametrize(
    "overrides",
    [
        {"pattern": "adaptive", "slow_percent": 10.0, "topology": "racks.csv"},
        {"pattern": "peers"},
        {"collective": "barrier", "timeout_s": 60.0},
        {"collective": "gather", "root": 6},
        {"tool": "all_reduce_latency_comp"},
        {"tool": "soak", "duration": "6h"},
        {"tool": "nccl_tests", "expected_link": 50.0, "expected_links": 2},
    ],
    ids=lambda overrides: " ".join(map(str, overrides.values())),
)
def test_diagnose_can_probe_two_ranks_of_two_hosts_with_any_case(overrides: dict[str, object]) -> None:
    case = load_case_config(Config, None, overrides)
    probe = OUTCOME.probe(case.model_dump(mode="json"))
    found = load_case_config(Config, None, overrides | dict(probe or {}))
    assert found.refusal(nnodes=2, nproc=1) is None
    assert (found.tool, found.size_list, found.timeout_s) == ("sweep", (8,), case.timeout_s)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_small_types_take_any_size(dtype: str) -> None:
    assert load_case_config(Config, None, {"dtype": dtype, "sizes": "1..8"}).size_list == (1, 2, 4, 8)


@pytest.mark.parametrize("path", sorted(ROOT.glob("vendors/*/network-pytorch/config/*.py")), ids=lambda path: path.stem)
def test_every_shipped_case_config_loads(path: Path) -> None:
    assert load_case_config(Config, path, {}).size_list


@pytest.mark.parametrize("vendor", ["cpu", "common"])
def test_a_shipped_case_of_pairs_compares_data_more_often_than_once_in_its_iterations(vendor: str) -> None:
    config = load_case_config(Config, ROOT / f"vendors/{vendor}/network-pytorch/config/config_pairs.py", {})
    assert config.check and config.check_interval is not None and config.check_interval <= config.iterations // 2


def test_several_times_of_compute_are_a_list() -> None:
    assert load_case_config(Config, None, dict([parse_override("after_compute_ms=1,10.5")])).after_compute_ms == [
        1,
        10.5,
    ]
    assert load_case_config(Config, None, dict([parse_override("after_compute_ms=10")])).after_compute_ms == [10]
