"""Asks what `layout = "auto"` of a training would choose, for `run.py plan --settings`."""

import importlib.util
import json
import subprocess
import sys
from typing import Any

from run_benchmarks.console.command_line import ROOT
from run_benchmarks.plan.config_names import named_size

LAYOUT_COLUMNS = ("memory of a device", "layout")
MODULE = "training.benchmarks.driver.training.layout.layout_preview"
DEADLINE_S = 300.0


def layout_rows(case: dict[str, Any]) -> list[tuple[str, str]]:
    """Memory and choice, in words, for a case of a masked plan; empty if its layout is fixed.

    The estimate needs torch, which a head node need not have: the row then says so.
    """
    if case["config"].get("layout") != "auto":
        return []
    unknown = "the device's own"
    if importlib.util.find_spec("torch") is None:
        return [(unknown, "decided on the hosts: the estimate needs torch, which this Python has not")]
    named = named_size(case["config_file"].rpartition("/")[2].removesuffix(".py"))
    question = {key: case[key] for key in ("model", "framework", "config", "nnodes", "nproc")}
    question["hardware"] = "" if named is None else named.hardware
    argv = [sys.executable, "-m", MODULE]
    try:
        answer = subprocess.run(
            argv, input=json.dumps(question), capture_output=True, text=True, cwd=ROOT, timeout=DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [(unknown, f"decided on the hosts: no estimate within {DEADLINE_S:g} s")]
    if answer.returncode != 0:
        last = (answer.stderr.strip().splitlines() or ["no reason given"])[-1]
        return [(unknown, f"decided on the hosts: {last}")]
    return [(memory, layout) for memory, layout in json.loads(answer.stdout)]
