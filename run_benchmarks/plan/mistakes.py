"""Finds the mistakes of a case that can be told apart from its others: hosts, benchmark, overrides."""

from collections.abc import Mapping
from pathlib import Path

from common.errors import InputProblems, Problem
from protocol.case_config import CaseConfig, LoadedConfig, load_case_config, override_problems
from protocol.config_file import OVERRIDE, config_file
from run_benchmarks.plan.references import expectation_problems
from run_benchmarks.settings.case import CaseSettings
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.settings.settings import Settings
from training.benchmarks.catalog import Benchmark, UnknownBenchmarkError, benchmark
from vendors import Vendor, available, case_dir

EVERY_VENDORS_BACKEND = "gloo"


def host_problems(name: str, case: CaseSettings, settings: Settings) -> list[Problem]:
    """Mistakes in which and how many hosts a case asks for."""
    known = settings.cluster.HOSTS
    problems = [
        Problem(
            settings.source(f"{name}.hosts"), f"{name}.hosts", host, f"a host that takes part; {nearest(host, known)}"
        )
        for host in case.hosts or ()
        if host not in known
    ]
    if case.nnodes > len(known if case.hosts is None else case.hosts):
        allowed = f"at most {len(known)}, the number of HOSTS in {settings.cluster_file}"
        if case.hosts is not None:
            allowed = f"at most {len(case.hosts)}, the number of its hosts"
        problems.append(Problem(settings.source(f"{name}.nnodes"), f"{name}.nnodes", case.nnodes, allowed))
    return problems


def unknown_benchmark(
    name: str, model: str, framework: str, settings: Settings, error: UnknownBenchmarkError
) -> Problem:
    """The mistake of a case that names a benchmark which does not exist."""
    return Problem(settings.source(name), f"{name}.model:framework", f"{model}:{framework}", str(error))


def problems_of_config(
    name: str, case: CaseSettings, loaded: LoadedConfig[CaseConfig], vendor: Vendor, settings: Settings
) -> list[Problem]:
    """Why a case with these settings, valid in themselves, would fail on the hosts: its ranks, backend or data."""
    config, problems = loaded.config, []
    if (reason := config.refusal(nnodes=case.nnodes, nproc=case.nproc)) is not None:
        ranks = f"{case.nnodes} x {case.nproc}"
        problems.append(Problem(settings.source(name), f"{name}.nnodes x nproc", ranks, reason))
    if config.backend not in (None, vendor.backend, EVERY_VENDORS_BACKEND):
        allowed = ", ".join(map(repr, dict.fromkeys((vendor.backend, EVERY_VENDORS_BACKEND))))
        allowed = f"vendor {vendor.name} has no such backend; allowed: {allowed}"
        problems.append(placed(Problem(loaded.origins["backend"], "backend", config.backend, allowed), name, settings))
    if (reason := config.data_refusal(has_folder=case.data_dir_host is not None)) is not None:
        key = f"{name}.data_dir_host"
        problems.append(Problem(settings.source(key), key, case.data_dir_host, reason))
    return problems


def problems_of_overrides(
    name: str, found: Benchmark, overrides: Mapping[str, object], settings: Settings
) -> list[Problem]:
    """Mistakes in the overrides of a case whose config file cannot be read."""
    return [placed(problem, name, settings) for problem in override_problems(found.config_class, overrides)]


def problems_of_expect(
    name: str, case: CaseSettings, found: Benchmark, file: Path | None, settings: Settings
) -> list[Problem]:
    """Mistakes in `expect` of a case that has others: its metrics are those of its settings without wrong overrides.

    Nothing where these settings cannot be read: a metric may depend on any of them.
    """
    wrong = {problem.key for problem in override_problems(found.config_class, case.overrides)}
    right = {key: value for key, value in case.overrides.items() if key not in wrong}
    if file is None or not file.is_file():
        return []
    try:
        config = load_case_config(found.config_class, file, right)
    except InputProblems:
        return []
    return expectation_problems(name, case.limits(), found, config, settings.source(f"{name}.expect"))


def any_config_file(case: CaseSettings, found: Benchmark) -> Path | None:
    """The case's config file of the first vendor that has it, where the case's own vendor is unknown."""
    folders = (case_dir(vendor, found.model, found.framework) for vendor in available())
    files = (config_file(folder / "config", case.config) for folder in folders)
    return next((file for file in files if file.is_file()), None)


def problems_of_broken(name: str, written: Mapping[str, object], settings: Settings) -> list[Problem]:
    """Further mistakes of a case whose settings are wrong: its benchmark, its overrides."""
    model, framework, overrides = (written.get(key) for key in ("model", "framework", "overrides"))
    if not isinstance(model, str) or not isinstance(framework, str):
        return []
    try:
        found = benchmark(model, framework)
    except UnknownBenchmarkError as error:
        return [unknown_benchmark(name, model, framework, settings, error)]
    named = (
        {key: value for key, value in overrides.items() if isinstance(key, str)} if isinstance(overrides, dict) else {}
    )
    return problems_of_overrides(name, found, named, settings)


def placed(problem: Problem, name: str, settings: Settings) -> Problem:
    """The mistake; one in an override names the file and key with which the case `name` overrides."""
    if problem.file != OVERRIDE:
        return problem
    key = f"{name}.overrides.{problem.key}" if problem.key else f"{name}.overrides"
    return problem._replace(file=settings.source(key), key=key)
