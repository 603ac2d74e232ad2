"""Makes what a round works with: this machine as its host, and whatever a test gives instead."""

from pathlib import Path
from typing import Any

from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.runtimes.process import ProcessRuntime
from run_benchmarks.session.preparation import PreparedRun
from run_benchmarks.state.context import RunContext
from run_benchmarks.state.interruption import Interruption


def context(prepared: PreparedRun, folder: Path, **others: Any) -> RunContext:
    """The context of a round whose results come into `folder`; `others` are other values of its fields."""
    fields: dict[str, Any] = {
        "plan": prepared.plan,
        "code": prepared.code,
        "hosts": {"localhost": LocalHost("localhost")},
        "reports": {"localhost": HostReport(host="localhost")},
        "runtime": ProcessRuntime(),
        "result_dir": folder,
        "interruption": Interruption("clean"),
        "link_limit": 5.0,
    }
    return RunContext(**{**fields, **others})
