"""What `run.py plan --settings` says of layout = "auto" where the estimate cannot be asked, and how it asks."""

import importlib.util
import json
import subprocess
from typing import Any

import pytest

from run_benchmarks.commands.layout_view import MODULE, layout_rows

CASE: dict[str, Any] = {
    "model": "llama",
    "framework": "pytorch",
    "config": {"layout": "auto"},
    "config_file": "vendors/nvidia/llama-pytorch/config/config_A100x1x8.py",
    "nnodes": 1,
    "nproc": 8,
}
ASKED: dict[str, Any] = {}


def _answering(monkeypatch: pytest.MonkeyPatch, code: int, out: str, error: str) -> None:
    def run(argv: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        ASKED.update(argv=argv, **json.loads(options["input"]))
        return subprocess.CompletedProcess(argv, code, out, error)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


def test_a_fixed_layout_asks_nothing() -> None:
    assert layout_rows(CASE | {"config": {"layout": "fixed"}}) == [] == layout_rows(CASE | {"config": {}})


def test_the_estimate_is_asked_for_the_hardware_in_the_configs_name(monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, 0, '[["42.3 GB", "1 x 1 samples"]]', "")
    assert layout_rows(CASE) == [("42.3 GB", "1 x 1 samples")]
    assert ASKED["argv"][1:] == ["-m", MODULE]
    assert (ASKED["hardware"], ASKED["nnodes"], ASKED["nproc"], ASKED["model"]) == ("A100", 1, 8, "llama")


def test_a_reason_stands_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    _answering(monkeypatch, 2, "", "a warning\nno datasheet tells the memory of B300\n")
    ((_, said),) = layout_rows(CASE)
    assert said == "decided on the hosts: no datasheet tells the memory of B300"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    ((_, said),) = layout_rows(CASE)
    assert said == "decided on the hosts: the estimate needs torch, which this Python has not"
