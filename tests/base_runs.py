"""Writes the folder of a run of the device tests, as far as it is read for its products."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path


def write_base_run(
    folder: Path, device: str, steps: Sequence[Mapping[str, object]], watts: float | None = None, **settings: object
) -> Path:
    """A round of the case BASE on `device` with these STEP_ENDs; watts: the devices' power limit."""
    config = {"matmul_size": 8192, "iterations": 20, "sustained_seconds": 10.0, **settings}
    case = folder / "cases" / "BASE.json"
    case.parent.mkdir(parents=True, exist_ok=True)
    case.write_text(json.dumps({"case": "BASE", "config": config}))
    host = folder / "BASE" / f"round{1 + len(list(folder.glob('BASE/round*')))}" / "host_noderank0"
    host.mkdir(parents=True)
    accelerator = None if watts is None else {"devices": [{"index": 0, "power_limit_w": watts}]}
    (host / "sys_info.json").write_text(json.dumps({"accelerator": accelerator, "packages": {"torch": "2.13.0"}}))
    record = {"run_id": "run1", "case": "BASE", "verdict": "pass", "devices": [device], "steps": list(steps)}
    (host.parent / "round.json").write_text(json.dumps(record | {"world_size": 2, "metrics": {}}))
    return folder


def step(test: str, *rates: float) -> dict[str, object]:
    """A test's result: its rate on each rank in 1e12 operations a second."""
    return {"test": test, "values_of_ranks": list(rates), "correct": "pass"}
