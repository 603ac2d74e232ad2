import subprocess
import sys
from pathlib import Path

import pytest

from protocol.case_config import CaseConfig
from training.benchmarks.catalog import UnknownBenchmarkError, available, benchmark

ROOT = Path(__file__).parents[3]


def test_every_listed_benchmark_loads() -> None:
    assert ("network", "pytorch") in available()
    for model, framework in available():
        found = benchmark(model, framework)
        assert issubclass(found.config_class, CaseConfig)
        assert (found.model, found.framework) == (model, framework)
        assert found.entry_module.startswith("training.benchmarks.")


def test_a_version_suffix_names_the_same_framework() -> None:
    assert benchmark("network", "pytorch_2.0.1") == benchmark("network", "pytorch")


@pytest.mark.parametrize(
    ("model", "framework", "expected"),
    [
        ("netwrok", "pytorch", "unknown model 'netwrok'; did you mean 'network'.*available: .*network"),
        ("network", "pytorhc", "unknown framework of network 'pytorhc'; did you mean 'pytorch'"),
        ("driver", "pytorch", "unknown model 'driver'"),
        ("", "", "unknown model ''"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(model: str, framework: str, expected: str) -> None:
    with pytest.raises(UnknownBenchmarkError, match=expected):
        benchmark(model, framework)


def test_what_the_head_node_imports_needs_no_torch() -> None:
    """The controller's machine has neither torch nor numpy nor psutil."""
    script = """
import sys
from protocol import case_config, node_record, perflog; from training.benchmarks import catalog
for model, framework in catalog.available():
    catalog.benchmark(model, framework)
print(sorted({"torch", "numpy", "psutil"} & set(sys.modules)))
"""
    result = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
