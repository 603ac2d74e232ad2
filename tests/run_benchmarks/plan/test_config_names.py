"""A config that is named for other hardware or another size than the case is a warning that names both."""

import pytest

from run_benchmarks.plan.config_names import NamedSize, known_hardware, name_warnings, named_size
from run_benchmarks.plan.resolve import resolve
from run_benchmarks.settings.case import CaseSettings
from tests.run_benchmarks.conftest import TEST, Load

KNOWN = known_hardware()


def case(config: str, nnodes: int, nproc: int) -> CaseSettings:
    return CaseSettings(model="bert", framework="pytorch", config=config, nnodes=nnodes, nproc=nproc)


def test_what_a_name_says() -> None:
    assert named_size("config_A100x2x8") == NamedSize("A100", 2, 8)
    assert named_size("config_full_range") is None and named_size("config_A100x1x8_flagperf") is None
    assert {"A100", "H100", "CPU"} <= KNOWN


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("BERT_A", ("config_A100x2x8", 2, 8), []),
        ("BERT_A100_2X8", ("config_A100x2x8", 2, 8), []),
        ("BERT_A", ("config_full_range", 1, 3), []),
        (
            "BERT_A",
            ("config_A100x2x8", 1, 3),
            ["BERT_A.config: config_A100x2x8 is named for 2 x 8 ranks, the case has 1 x 3 (nnodes x nproc)"],
        ),
        (
            "bert-h100",
            ("config_A100x2x8", 2, 8),
            ["bert-h100.config: config_A100x2x8 is named for A100, the case for H100"],
        ),
    ],
)
def test_a_name_that_says_something_else_is_told(
    name: str, settings: tuple[str, int, int], expected: list[str]
) -> None:
    assert name_warnings(name, case(*settings), KNOWN) == expected


def test_it_is_a_warning_of_the_run(load: Load) -> None:
    found = resolve(load(TEST.replace('"nproc": 2', '"nproc": 1')), local_python="python3")
    (warning,) = found.warnings
    assert warning == "ONE.config: config_CPUx1x2 is named for 1 x 2 ranks, the case has 1 x 1 (nnodes x nproc)"
