"""Dialect simai: every recorded case, byte for byte."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from simulation import cli

DATA = Path(__file__).parents[2] / "data" / "simulation" / "flows"
CASES = json.loads((DATA / "INDEX.json").read_text())
TABLES = ("rings", "trees", "groups")
SWITCHES = {"AS_NVLS_ENABLE": ("--algorithm", "nvls"), "AS_PXN_ENABLE": ("--pxn",)}


def command(case: Mapping[str, object]) -> list[str]:
    """The options of a recorded case, without its environment."""
    names = {"ngpus": "--ranks", "gpus_per_node": "--gpus-per-server", "group": "--group", "gpu": "--gpu-type"}
    names |= {name: f"--{name}" for name in ("tp", "pp", "ep", "op", "size")}
    return ["flows", "--dialect", "simai", *(str(word) for name in names for word in (names[name], case[name]))]


def outputs(case: Mapping[str, object], folder: Path) -> list[str]:
    tables = [word for table in TABLES for word in (f"--{table}", str(folder / f"{case['name']}_{table}.csv"))]
    return ["--output", str(folder / f"{case['name']}_flows.csv"), *tables]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_recorded_case_comes_out_with_the_same_bytes(
    case: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    switches = [word for name in case["env"] for word in SWITCHES[name]]
    assert cli.main([*command(case), *switches, *outputs(case, tmp_path), "--json"]) == 0
    for suffix, recorded in case["files"].items():
        written = (tmp_path / f"{case['name']}{suffix}").read_bytes()
        kept = DATA / f"{case['name']}{suffix}"
        if kept.exists():
            assert written.decode() == kept.read_text()
        assert hashlib.sha256(written).hexdigest() == recorded["sha256"], suffix
        assert len(written) == recorded["bytes"]
    data = json.loads(capsys.readouterr().out)
    said = f"flows={data['flows']} bytes={data['bytes']} algo={data['algorithm_number']} "
    assert case["out"] == f"{said}rings={data['rings']} trees={data['trees']}"


def test_all_files_kept_here_belong_to_a_case() -> None:
    named = {f"{case['name']}{suffix}" for case in CASES for suffix in case["files"]}
    assert {file.name for file in DATA.glob("*.csv")} <= named and len(CASES) == 37


@pytest.mark.parametrize("name", ["tp16_2n_AllReduce_16M_A100_pxn", "tp8_nvls_AllReduce_64M_H800"])
def test_the_originals_environment_variables_count_too(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = (case for case in CASES if case["name"] == name)
    for variable, value in case["env"].items():
        monkeypatch.setenv(variable, value)
    assert cli.main([*command(case), *outputs(case, tmp_path)]) == 0
    written = (tmp_path / f"{name}_flows.csv").read_bytes()
    assert hashlib.sha256(written).hexdigest() == case["files"]["_flows.csv"]["sha256"]
