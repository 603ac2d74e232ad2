"""Finds all benchmarks: folders training/benchmarks/<model>/<framework> with a config.py. Needs no torch."""

import difflib
import importlib
from dataclasses import dataclass
from pathlib import Path

from training.benchmarks.driver.protocol.case_config import CaseConfig

_ROOT = Path(__file__).parents[2]
_PACKAGE = "training.benchmarks"
_DRIVER = "driver"  # shared by all benchmarks, not a benchmark itself

# What starts the ranks of a framework, the LAUNCHER in its config.py: torch's agent, or launch.processes.
LAUNCHERS = ("torchrun", "processes")


class UnknownBenchmarkError(LookupError):
    """No such model or framework; the message lists the available ones and the nearest name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """One benchmark: its settings and the module that `driver.launch` starts in every rank."""

    model: str
    framework: str
    config_class: type[CaseConfig]
    entry_module: str
    launcher: str = "torchrun"


def available() -> list[tuple[str, str]]:
    """(model, framework) of every benchmark, sorted."""
    found = ((path.parts[-3], path.parts[-2]) for path in _ROOT.glob("*/*/config.py"))
    return sorted(each for each in found if each[0] != _DRIVER)


def benchmark(model: str, framework: str) -> Benchmark:
    """The benchmark of `model` and `framework`; a framework may have a version, as in pytorch_2.0.1.

    Raises:
        UnknownBenchmarkError: there is no such model or framework.
    """
    package = framework.partition("_")[0]
    known = available()
    models = sorted({name for name, _ in known})
    if model not in models:
        raise UnknownBenchmarkError(_message("model", model, models))
    frameworks = [name for owner, name in known if owner == model]
    if package not in frameworks:
        raise UnknownBenchmarkError(_message(f"framework of {model}", framework, frameworks))
    module = importlib.import_module(f"{_PACKAGE}.{model}.{package}.config")
    launcher = getattr(module, "LAUNCHER", LAUNCHERS[0])
    if launcher not in LAUNCHERS:
        raise UnknownBenchmarkError(f"{module.__file__}: LAUNCHER = {launcher!r}; allowed: {', '.join(LAUNCHERS)}")
    return Benchmark(
        model=model,
        framework=package,
        config_class=module.Config,
        entry_module=module.ENTRY_MODULE,
        launcher=launcher,
    )


def _message(what: str, name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"unknown {what} {name!r}{hint}; available: {', '.join(known)}"
