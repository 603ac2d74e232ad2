from pathlib import Path

import pytest

from training.benchmarks.driver.config import CaseConfigError, load_case_config
from training.benchmarks.network.pytorch.config import Config

ROOT = Path(__file__).parents[4]


def test_sizes_are_read_and_a_number_is_a_size() -> None:
    assert load_case_config(Config, None, {"sizes": "4K, 1M..4M"}).size_list == (4096, 1 << 20, 1 << 21, 1 << 22)
    assert load_case_config(Config, None, {"sizes": 64}).size_list == (64,)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"sizes": "1MB"}, "sizes = '1MB': '1MB' leaves open"),
        ({"sizes": "1..8"}, "sizes = '1..8': 1 bytes are not a whole number of float32 elements of 4 bytes"),
        ({"sizes": True}, "sizes = True: Input should be a valid string"),
        ({"dtype": "fp32"}, "dtype = 'fp32': .*allowed: one of 'float64', 'float32'"),
        ({"in_place": False}, "in_place = False: torch.distributed.all_reduce works in place only"),
        ({"iterations": 0}, "iterations = 0: .*allowed: integer >= 1"),
        ({"collective": "allreduce"}, "collective = 'allreduce': .*'all_reduce'"),
    ],
)
def test_a_wrong_setting_is_named(overrides: dict[str, object], expected: str) -> None:
    with pytest.raises(CaseConfigError, match=expected):
        load_case_config(Config, None, overrides)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
def test_small_types_take_any_size(dtype: str) -> None:
    assert load_case_config(Config, None, {"dtype": dtype, "sizes": "1..8"}).size_list == (1, 2, 4, 8)


@pytest.mark.parametrize("path", sorted(ROOT.glob("vendors/*/network-pytorch/config/*.py")), ids=lambda path: path.stem)
def test_every_shipped_case_config_loads(path: Path) -> None:
    assert load_case_config(Config, path, {}).size_list
