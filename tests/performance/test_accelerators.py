"""The commands of docs/reference/measurements.md: each file plans, at true size, and the page names all of them."""

import csv
import json
from pathlib import Path

import pytest

from tests.docs.pages import text_of
from tests.run_benchmarks.calling import call
from tests.training.benchmarks.driver.training.tiny import EVERY, benchmark_of
from training.benchmarks.driver.training.layout.memory_estimate import RESERVED
from training.benchmarks.driver.training.layout.stage_estimate import bytes_of_ranks

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((Path(__file__).with_name("accelerators")).glob("*.py"))
H200_BYTES = 150.0e9


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_measurement_is_a_run_that_can_be_planned(path: Path) -> None:
    result = call("--test-conf", str(path), "plan")
    assert result.exit_code == 0, result.output
    for case in json.loads(result.stdout)["cases"]:
        if case["model"] not in EVERY:
            continue
        config = EVERY[case["model"]][1].model_validate(case["config"])
        steps = 40 if path.stem == "predicted" else 100
        assert config.max_steps == steps and config.targets() == (), f"{steps} steps whatever is learned"
        ranks = 8 if path.stem.endswith("1x8") else 1
        needed = max(bytes_of_ranks(benchmark_of(case["model"]), config, ranks))
        assert needed * (1 + RESERVED) < H200_BYTES, f"{case['name']}: {needed / 1e9:.1f} GB"


def test_the_page_names_every_file() -> None:
    page = text_of(ROOT / "docs" / "reference" / "measurements.md")
    for path in FILES:
        assert f"`{path.name}`" in page


def test_each_line_of_the_tables_has_a_cell_for_each_column() -> None:
    for table in (ROOT / "docs" / "data" / "measurements").glob("*.csv"):
        header, *lines = csv.reader(table.read_text(encoding="utf-8").splitlines())
        assert {len(line) for line in lines} == {len(header)}, table.name
