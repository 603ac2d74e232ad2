"""Finds all benchmarks: folders training/benchmarks/<model>/<framework> with a config.py. Needs no torch.

A benchmark has two halves: config.py, what can be set, and outcome.py, what its results mean. The latter may be absent.
"""

import difflib
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from protocol.case_config import CaseConfig
from protocol.config_file import failed_at
from protocol.default_outcome import DefaultOutcome
from protocol.outcome import Metric, Outcome

_ROOT = Path(__file__).parents[0]
_PACKAGE = "training.benchmarks"
_DRIVER = "driver"  # shared by all benchmarks, not a benchmark itself

# What starts the ranks of a framework, the LAUNCHER in its config.py: torch's agent, or launch.processes.
LAUNCHERS = ("torchrun", "processes")
NEEDED = ("Config", "ENTRY_MODULE")  # of a config.py
PARTS_OF_OUTCOME = tuple(sorted(name for name in vars(Outcome) if not name.startswith("_")))


class UnknownBenchmarkError(LookupError):
    """No such model or framework; the message lists the available ones and the nearest name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """One benchmark: its settings, the module that `driver.launch` starts in every rank, and what its results mean."""

    model: str
    framework: str
    config_class: type[CaseConfig]
    entry_module: str
    outcome: Outcome
    launcher: str = "torchrun"


def available() -> list[tuple[str, str]]:
    """(model, framework) of every benchmark, sorted."""
    found = ((path.parts[-3], path.parts[-2]) for path in _ROOT.glob("*/*/config.py"))
    return sorted(each for each in found if each[0] != _DRIVER)


def without_version(framework: str) -> str:
    """The name of a framework that may have a version: pytorch of pytorch_2.0.1."""
    return framework.partition("_")[0]


def benchmark(model: str, framework: str) -> Benchmark:
    """The benchmark of `model` and `framework`; a framework may have a version, as in pytorch_2.0.1.

    Raises:
        UnknownBenchmarkError: there is no such model or framework, or one of its halves fails or is of another form.
    """
    package = without_version(framework)
    known = available()
    models = sorted({name for name, _ in known})
    if model not in models:
        raise UnknownBenchmarkError(_message("model", model, models))
    frameworks = [name for owner, name in known if owner == model]
    if package not in frameworks:
        raise UnknownBenchmarkError(_message(f"framework of {model}", framework, frameworks))
    module = _imported(f"{_PACKAGE}.{model}.{package}.config")
    lacking = [name for name in NEEDED if not hasattr(module, name)]
    if lacking:
        raise UnknownBenchmarkError(f"{module.__file__}: lacks {', '.join(lacking)}")
    launcher = getattr(module, "LAUNCHER", LAUNCHERS[0])
    if launcher not in LAUNCHERS:
        raise UnknownBenchmarkError(f"{module.__file__}: LAUNCHER = {launcher!r}; allowed: {', '.join(LAUNCHERS)}")
    return Benchmark(
        model=model,
        framework=package,
        config_class=module.Config,
        entry_module=module.ENTRY_MODULE,
        outcome=_outcome(module, f"{_PACKAGE}.{model}.{package}.outcome"),
        launcher=launcher,
    )


def _imported(name: str) -> ModuleType:
    """One half of a benchmark."""
    try:
        return importlib.import_module(name)
    except Exception as error:
        file = _ROOT.parents[1] / f"{name.replace('.', '/')}.py"
        raise UnknownBenchmarkError(f"{file}: {failed_at(file, error)}: it cannot be imported") from error


def _outcome(config: ModuleType, name: str) -> Outcome:
    """OUTCOME of the benchmark's outcome.py; without that file the default one, of the METRICS of its config.py."""
    declared = getattr(config, "METRICS", ())
    if importlib.util.find_spec(name) is None:
        if not all(isinstance(metric, Metric) for metric in declared):
            raise UnknownBenchmarkError(f"{config.__file__}: METRICS holds something else than {Metric.__name__}s")
        return DefaultOutcome(declared)
    module = _imported(name)
    outcome = getattr(module, "OUTCOME", None)
    if declared:
        raise UnknownBenchmarkError(f"{config.__file__}: METRICS has no effect beside {module.__file__}")
    if not isinstance(outcome, Outcome):
        missing = [part for part in PARTS_OF_OUTCOME if not callable(getattr(outcome, part, None))]
        raise UnknownBenchmarkError(f"{module.__file__}: OUTCOME lacks {', '.join(missing)}; allowed: an Outcome")
    return outcome


def _message(what: str, name: str, known: list[str]) -> str:
    nearest = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
    return f"unknown {what} {name!r}{hint}; available: {', '.join(known)}"
