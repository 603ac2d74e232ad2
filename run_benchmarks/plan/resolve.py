"""Looks up everything that the settings name: vendor, benchmark, config file, image; reports all mistakes at once."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from container.image import ImageSpec, PackageSource, image_spec
from protocol import baseline_file
from protocol.case_config import CaseConfig, LoadedConfig, trace_case_config
from protocol.case_file import CaseFile, lost_in_json
from protocol.config_file import common_folder, config_file, config_files
from protocol.outcome import MeasuredCase
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.plan.cache import hashes_of
from run_benchmarks.plan.config_names import known_hardware, name_warnings
from run_benchmarks.plan.mistakes import (
    any_config_file,
    host_problems,
    placed,
    problems_of_broken,
    problems_of_config,
    problems_of_expect,
    problems_of_overrides,
    unknown_benchmark,
)
from run_benchmarks.plan.origins import case_origins, config_origins
from run_benchmarks.plan.recorded import SettingsOrigin
from run_benchmarks.plan.references import expectation_problems, outcome_problem
from run_benchmarks.plan.without_effect import without_effect
from run_benchmarks.settings.case import CaseSettings
from run_benchmarks.settings.changes import REPEAT
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.settings.container_merge import merged
from run_benchmarks.settings.container_options import ContainerOptions, parse_container_options
from run_benchmarks.settings.host_access import deploy_path
from run_benchmarks.settings.settings import Settings
from run_benchmarks.settings.value_types import MOST_ROUNDS_OF_HOSTS
from training.benchmarks.catalog import LAUNCHERS, Benchmark, UnknownBenchmarkError, benchmark, without_version
from training.benchmarks.driver.training.settings.settings import AUTO, TrainingConfig
from vendors import (
    CaseFileError,
    UnknownVendor,
    Vendor,
    case_dir,
    case_environment,
    case_requirements,
    extern,
)
from vendors import load as load_vendor
from vendors.case_files import requirement_names
from vendors.extern import Extern

ValueT = TypeVar("ValueT")


@dataclass(frozen=True, kw_only=True)
class ResolvedCase:
    """A case with everything that it names. `image` is None for the process runtime or a named image.

    `config_origins` has the origin of each setting in `config`, `origins` of the case's own settings.
    """

    name: str
    settings: CaseSettings
    benchmark: Benchmark
    config_file: Path
    config: CaseConfig
    config_origins: dict[str, str]
    origins: dict[str, str]
    environment: dict[str, str]
    extern: Mapping[str, str]
    requirement_lines: tuple[str, ...]
    image: ImageSpec | None
    python: str

    @functools.cached_property
    def case_file(self) -> CaseFile:
        """The case.json that its ranks read."""
        config = self.config.model_dump(mode="json")
        return CaseFile(case=self.name, model=self.benchmark.model, framework=self.benchmark.framework, config=config)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Vendor, container options and cases, ready for planning; `warnings` names settings without effect.

    `deploy` is the folder of our files on the hosts.
    """

    vendor: Vendor
    deploy: str
    options: ContainerOptions
    cases: tuple[ResolvedCase, ...]
    warnings: tuple[str, ...]


def resolve(settings: Settings, *, local_python: str, recorded: Mapping[str, CaseFile] | None = None) -> Resolved:
    """Look everything up.

    Args:
        local_python: interpreter for the process runtime on localhost if PYTHON is not set.

    Raises:
        InputProblems: names do not exist; the message lists all of them with the available ones.
    """
    problems: list[Problem] = []
    vendor = None
    try:
        vendor = None if "VENDOR" in settings.unknown else load_vendor(settings.test.VENDOR)
    except (UnknownVendor, ValueError) as error:
        problems.append(Problem(settings.source("VENDOR"), "VENDOR", settings.test.VENDOR, str(error)))
    problems += [
        Problem(
            settings.source("CASES"),
            "CASES",
            name,
            f"no definition in this file; {nearest(name, settings.defined_cases)}",
        )
        for name in settings.undefined_cases
    ]
    for name, written in settings.broken_cases.items():
        problems += problems_of_broken(name, written, settings)
    cases, warnings = [], []
    for name, case in settings.cases.items():
        origin = SettingsOrigin((recorded or {}).get(name))
        try:
            cases.append(_resolved_case(name, case, settings, vendor, local_python, origin))
            warnings += origin.warnings
        except InputProblems as error:
            problems += error.problems
    against, not_compared = _baseline_notes(settings, cases)
    problems += against
    if problems or vendor is None:
        raise InputProblems(problems)
    hardware = known_hardware()
    written = settings.test.ACCE_CONTAINER_OPT
    options, replaced = merged(parse_container_options(vendor.container_options), written, "ACCE_CONTAINER_OPT")
    return Resolved(
        vendor=vendor,
        deploy=settings.test.FLAGPERF_PATH_HOST or deploy_path(settings.cluster),
        options=options,
        cases=tuple(cases),
        warnings=(
            *warnings,
            *not_compared,
            *without_effect(settings),
            *(warning for name, case in settings.cases.items() for warning in name_warnings(name, case, hardware)),
            *(replaced if settings.test.in_containers else ()),
        ),
    )


def _resolved_case(
    name: str,
    case: CaseSettings,
    settings: Settings,
    vendor: Vendor | None,
    local_python: str,
    origin: SettingsOrigin,
) -> ResolvedCase:
    """Resolve one case; without a vendor, only report its mistakes."""
    problems = [] if "HOSTS" in settings.unknown else host_problems(name, case, settings)
    try:
        found = benchmark(case.model, case.framework)
    except UnknownBenchmarkError as error:
        raise InputProblems(
            [*problems, unknown_benchmark(name, case.model, case.framework, settings, error)]
        ) from error
    if vendor is None:
        problems += problems_of_overrides(name, found, case.overrides, settings)
        raise InputProblems([*problems, *problems_of_expect(name, case, found, any_config_file(case, found), settings)])
    try:
        resolved = _case(name, case, found, settings, vendor, local_python, origin)
    except InputProblems as error:
        raise InputProblems([*problems, *error.problems]) from error
    if problems:
        raise InputProblems(problems)
    return resolved


def _case(
    name: str,
    case: CaseSettings,
    found: Benchmark,
    settings: Settings,
    vendor: Vendor,
    local_python: str,
    origin: SettingsOrigin,
) -> ResolvedCase:
    problems: list[Problem] = []

    def attempt(key: str, value: object, action: Callable[[], ValueT]) -> ValueT | None:
        try:
            return action()
        except InputProblems as error:
            problems.extend(placed(problem, name, settings) for problem in error.problems)
        except (CaseFileError, ValueError) as error:
            problems.append(Problem(settings.source(f"{name}.{key}"), f"{name}.{key}", value, str(error)))
        return None

    def load() -> LoadedConfig[CaseConfig]:
        return _load_config(found, config_path, case.overrides)

    directory = case_dir(vendor.name, found.model, found.framework)
    config_path = config_file(directory / "config", case.config)
    loaded = attempt("config", case.config, lambda: origin.settings(name, config_path, found.config_class, load))
    if loaded is None and not config_path.is_file():
        problems += problems_of_overrides(name, found, case.overrides, settings)
    environment = attempt("config", case.config, lambda: case_environment(directory, case.config))
    requirements = attempt("config", case.config, lambda: case_requirements(directory))
    if loaded is not None:
        problems += problems_of_config(name, case, loaded, vendor, settings)
        problems += expectation_problems(name, case.limits(), found, loaded.config, settings.source(f"{name}.expect"))
    else:
        problems += problems_of_expect(name, case, found, config_path, settings)
    problems += _too_many(name, case, settings)
    own = attempt("config", case.config, lambda: _extern(directory, found, loaded))
    image = attempt("framework", case.framework, lambda: _image(case, settings, vendor, requirements or ()))
    if problems or loaded is None or environment is None or requirements is None or own is None:
        raise InputProblems(problems)
    of_config = config_origins(name, loaded.origins, settings)
    vendors_own = "" if loaded.config.backend else f"vendors/{vendor.name}/adapter.py"
    return ResolvedCase(
        name=name,
        settings=case,
        benchmark=found,
        config_file=config_path,
        config=loaded.config,
        config_origins=of_config,
        origins=case_origins(name, case, of_config, settings, backend=vendors_own),
        environment=environment,
        extern=own.files,
        requirement_lines=_requirement_lines(requirements, loaded.config),
        image=image,
        python=_python(case, settings, vendor, local_python),
    )


def _too_many(name: str, case: CaseSettings, settings: Settings) -> list[Problem]:
    """A case whose plan would take gigabytes and minutes, though each of its numbers is within its own bounds."""
    most = max(1, MOST_ROUNDS_OF_HOSTS // case.nnodes)
    if case.repeat <= most:
        return []
    place = settings.source(f"{name}.repeat") if settings.changes.repeat is None else REPEAT
    allowed = f"expected a whole number from 1 to {most} on {case.nnodes} hosts"
    return [Problem(place, f"{name}.repeat", case.repeat, allowed)]


def _extern(directory: Path, found: Benchmark, loaded: LoadedConfig[CaseConfig] | None) -> Extern:
    """The vendor's own parts of the model; a wish for another optimizer beside them is an error."""
    own = extern.find(directory, is_training=issubclass(found.config_class, TrainingConfig))
    if own.functions and found.launcher != LAUNCHERS[0]:
        raise ValueError(f"{own.entry} has no effect: ranks that {found.launcher!r} starts do not call it")
    wish = AUTO if loaded is None else getattr(loaded.config, "optimizer_impl", AUTO)
    if extern.CREATE_OPTIMIZER in own.functions and wish != AUTO:
        raise ValueError(f"optimizer_impl = {wish!r} has no effect: {own.entry} makes the optimizer; allowed: {AUTO!r}")
    return own


def _requirement_lines(files: Sequence[Path], config: CaseConfig) -> tuple[str, ...]:
    """The lines of the files that require something, without comments and what the settings do without."""
    found: list[str] = []
    for file in files:
        lines = file.read_text().splitlines()
        used = (lines[number - 1] for number, name in requirement_names(file) if config.uses_package(name))
        found += [line.split("#")[0].strip() for line in used]
    return tuple(found)


def _load_config(found: Benchmark, file: Path, overrides: Mapping[str, object]) -> LoadedConfig[CaseConfig]:
    if not file.is_file():
        there = sorted({*config_files(file.parent), *config_files(common_folder(file.parent))})
        raise ValueError(f"no file {file.name} in {file.parent}; {nearest(file.stem, there)}")
    loaded = trace_case_config(found.config_class, file, overrides)
    if lost := lost_in_json(loaded.config):
        allowed = "expected a value that JSON can carry: ranks read the settings as JSON"
        raise InputProblems(Problem(loaded.origins[key], key, getattr(loaded.config, key), allowed) for key in lost)
    return loaded


def _image(case: CaseSettings, settings: Settings, vendor: Vendor, requirements: tuple[Path, ...]) -> ImageSpec | None:
    if not settings.test.in_containers or settings.test.IMAGE is not None:
        return None
    if case.framework not in vendor.images:
        raise ValueError(f"vendor {vendor.name} has no image for it; {nearest(case.framework, vendor.images)}")
    test = settings.test
    return image_spec(
        vendor,
        case.framework,
        base_image=test.BASE_IMAGE,
        packages=PackageSource(index=test.PIP_SOURCE, trusted_host=test.PIP_TRUSTED_HOST, wheelhouse=test.WHEELHOUSE),
        requirements=requirements,
        options=test.IMAGE_OPTIONS,
        hashes_of=hashes_of,
    )


def _python(case: CaseSettings, settings: Settings, vendor: Vendor, local_python: str) -> str:
    if settings.test.PYTHON is not None:
        return settings.test.PYTHON
    if settings.test.in_containers:
        return vendor.images[case.framework].python if settings.test.IMAGE is None else "python3"
    return "python3" if settings.cluster.ssh_hosts else local_python


def _baseline_notes(settings: Settings, cases: Sequence[ResolvedCase]) -> tuple[list[Problem], list[str]]:
    """Check BASELINE: a problem if no case of the run has an entry in it, a warning for each case without one.

    A problem, too, for each case whose conditions its benchmark cannot tell.

    Args:
        cases: those without mistakes; of the others only name, model and framework are looked up.
    """
    file = settings.test.BASELINE
    if file is None:
        return [], []
    baseline = baseline_file.load(file)
    absent = f"is not compared: BASELINE {file} has no case of this name and model"
    notes = [f"{name} {absent}" for name in _without_entry(settings, cases, baseline)]
    problems: list[Problem] = []
    for case in cases:
        found = baseline.of_case(case.name, case.benchmark.model, case.benchmark.framework)
        try:
            conditions = dict(case.benchmark.outcome.conditions(_measured(case)))
        except Exception as error:  # noqa: BLE001 - as above
            problems.append(outcome_problem(settings.source(case.name), case.name, case.benchmark, "conditions", error))
            continue
        mismatches = [each.mismatch(each.device, conditions) for each in found]
        if not found:
            notes.append(f"{case.name} {absent}")
        elif all(mismatches):
            notes.append(f"{case.name} is not compared: BASELINE {file} is of other settings: {mismatches[0]}")
    if problems or not notes or len(notes) < len(settings.test.CASES):
        return problems, notes
    known = tuple(dict.fromkeys(each.case for each in baseline.cases))
    allowed = (
        f"a baseline with one of the CASES in it at least; it has {', '.join(known) or 'none'}; {'; '.join(notes)}"
    )
    return [Problem(settings.source("BASELINE"), "BASELINE", str(file), allowed)], []


def _without_entry(
    settings: Settings, cases: Sequence[ResolvedCase], baseline: baseline_file.Baseline
) -> Iterator[str]:
    """The names of those with mistakes, which `cases` lacks, that the baseline has no entry of."""
    resolved = {case.name for case in cases}
    for name, case in settings.cases.items():
        if name not in resolved and not baseline.of_case(name, case.model, without_version(case.framework)):
            yield name


def _measured(case: ResolvedCase) -> MeasuredCase:
    config, size = case.config.model_dump(mode="json"), case.settings
    return MeasuredCase.masked(case.name, config, nnodes=size.nnodes, nproc=size.nproc)
