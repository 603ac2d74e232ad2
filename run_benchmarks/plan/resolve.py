"""Looks up everything that the settings name: vendor, benchmark, config file, image; reports all mistakes at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from container.image import ImageSpec, image_spec
from run_benchmarks.errors import ConfigError, Problem
from run_benchmarks.plan.origins import case_origins, config_origins
from run_benchmarks.plan.recorded import SettingsOrigin
from run_benchmarks.plan.references import baseline_notes, expectation_problems
from run_benchmarks.settings.case import CaseSettings
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.settings.container_merge import merged
from run_benchmarks.settings.container_options import ContainerOptions, parse_container_options
from run_benchmarks.settings.settings import Settings
from training.benchmarks.driver.protocol.case_config import CaseConfig, LoadedConfig, trace_case_config
from training.benchmarks.driver.protocol.case_file import CaseFile, lost_in_json
from training.benchmarks.driver.protocol.catalog import Benchmark, UnknownBenchmarkError, benchmark
from training.benchmarks.driver.protocol.config_file import OVERRIDE
from vendors import (
    CaseFileError,
    UnknownVendor,
    Vendor,
    case_dir,
    case_environment,
    case_requirements,
)
from vendors import load as load_vendor

ValueT = TypeVar("ValueT")
CONTAINERS_ONLY = (
    "ACCE_CONTAINER_OPT",
    "PIP_SOURCE",
    "PIP_TRUSTED_HOST",
    "FLAGPERF_PATH_CONTAINER",
    "FLAGPERF_LOG_PATH_CONTAINER",
    "SHM_SIZE",
    "PIDS_LIMIT",
    "BASE_IMAGE",
    "WHEELHOUSE",
    "IMAGE",
    "IMAGE_OPTIONS",
)
BUILD_ONLY = ("BASE_IMAGE", "WHEELHOUSE", "PIP_SOURCE", "PIP_TRUSTED_HOST", "IMAGE_OPTIONS")
REMOTE_ONLY = ("SSH_PORT", "SSH_USER", "SSH_KEY", "KNOWN_HOSTS")


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
    requirements: tuple[Path, ...]
    image: ImageSpec | None
    python: str

    @functools.cached_property
    def case_file(self) -> CaseFile:
        """What its ranks read of its settings."""
        config = self.config.model_dump(mode="json")
        return CaseFile(case=self.name, model=self.benchmark.model, framework=self.benchmark.framework, config=config)


@dataclass(frozen=True, kw_only=True)
class Resolved:
    """Vendor, container options and cases, ready for planning; `warnings` names settings without effect."""

    vendor: Vendor
    options: ContainerOptions
    cases: tuple[ResolvedCase, ...]
    warnings: tuple[str, ...]


def resolve(settings: Settings, *, local_python: str, recorded: Mapping[str, CaseFile] | None = None) -> Resolved:
    """Look everything up.

    Args:
        local_python: interpreter for the process runtime on localhost if PYTHON is not set.

    Raises:
        ConfigError: names do not exist; the message lists all of them with the available ones.
    """
    problems: list[Problem] = []
    vendor = None
    try:
        vendor = load_vendor(settings.test.VENDOR)
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
    cases, warnings = [], []
    for name, case in settings.cases.items():
        try:
            found = _benchmark(name, case, settings)
            if vendor is not None:
                origin = SettingsOrigin((recorded or {}).get(name))
                cases.append(_case(name, case, found, settings, vendor, local_python, origin))
                warnings += origin.warnings
        except ConfigError as error:
            problems += error.problems
    against, not_compared = baseline_notes(settings, cases)
    if problems or against or vendor is None:
        raise ConfigError([*problems, *against])
    written = settings.test.ACCE_CONTAINER_OPT
    options, replaced = merged(parse_container_options(vendor.container_options), written, "ACCE_CONTAINER_OPT")
    return Resolved(
        vendor=vendor,
        options=options,
        cases=tuple(cases),
        warnings=(
            *warnings,
            *not_compared,
            *_without_effect(settings),
            *(replaced if settings.test.in_containers else ()),
        ),
    )


def _benchmark(name: str, case: CaseSettings, settings: Settings) -> Benchmark:
    """The benchmark of a case, which does not depend on the vendor.

    Raises:
        ConfigError: the benchmark or its config file does not exist, or the config is wrong.
    """
    problems: list[Problem] = []
    known = settings.cluster.HOSTS
    problems += [
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
    try:
        found = benchmark(case.model, case.framework)
    except UnknownBenchmarkError as error:
        value = f"{case.model}:{case.framework}"
        problems.append(Problem(settings.source(name), f"{name}.model:framework", value, str(error)))
    if problems:
        raise ConfigError(problems)
    return found


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
        except ConfigError as error:
            problems.extend(_placed(problem, name, settings) for problem in error.problems)
        except (CaseFileError, ValueError) as error:
            problems.append(Problem(settings.source(f"{name}.{key}"), f"{name}.{key}", value, str(error)))
        return None

    def load() -> LoadedConfig[CaseConfig]:
        return _load_config(found, config_file, case.overrides)

    directory = case_dir(vendor.name, found.model, found.framework)
    config_file = directory / "config" / f"{case.config}.py"
    loaded = attempt("config", case.config, lambda: origin.settings(name, config_file, found.config_class, load))
    environment = attempt("config", case.config, lambda: case_environment(directory))
    requirements = attempt("config", case.config, lambda: case_requirements(directory))
    if loaded is not None and (refusal := loaded.config.refusal(nnodes=case.nnodes, nproc=case.nproc)) is not None:
        ranks = f"{case.nnodes} x {case.nproc}"
        problems.append(Problem(settings.source(name), f"{name}.nnodes x nproc", ranks, refusal))
    if loaded is not None:
        problems += expectation_problems(name, case.limits(), found, loaded.config, settings.source(f"{name}.expect"))
    image = attempt("framework", case.framework, lambda: _image(case, settings, vendor, requirements or ()))
    if problems or loaded is None or environment is None or requirements is None:
        raise ConfigError(problems)
    of_config = config_origins(name, loaded.origins, settings)
    vendors_own = "" if loaded.config.backend else f"vendors/{vendor.name}/adapter.py"
    return ResolvedCase(
        name=name,
        settings=case,
        benchmark=found,
        config_file=config_file,
        config=loaded.config,
        config_origins=of_config,
        origins=case_origins(name, case, of_config, settings, backend=vendors_own),
        environment=environment,
        requirements=requirements,
        image=image,
        python=_python(case, settings, vendor, local_python),
    )


def _placed(problem: Problem, name: str, settings: Settings) -> Problem:
    """The same mistake; one in an override names the file and the key with which the case `name` overrides the
    setting.
    """
    if problem.file != OVERRIDE:
        return problem
    key = f"{name}.overrides.{problem.key}" if problem.key else f"{name}.overrides"
    return replace(problem, file=settings.source(key), key=key)


def _load_config(found: Benchmark, file: Path, overrides: Mapping[str, object]) -> LoadedConfig[CaseConfig]:
    if not file.is_file():
        there = sorted(path.stem for path in file.parent.glob("*.py"))
        raise ValueError(f"no file {file.name} in {file.parent}; {nearest(file.stem, there)}")
    loaded = trace_case_config(found.config_class, file, overrides)
    if lost := lost_in_json(loaded.config):
        allowed = "expected a value that JSON can carry: ranks read the settings as JSON"
        raise ConfigError(Problem(loaded.origins[key], key, getattr(loaded.config, key), allowed) for key in lost)
    return loaded


def _image(case: CaseSettings, settings: Settings, vendor: Vendor, requirements: tuple[Path, ...]) -> ImageSpec | None:
    if not settings.test.in_containers or settings.test.IMAGE is not None:
        return None
    if case.framework not in vendor.images:
        raise ValueError(f"vendor {vendor.name} has no image for it; {nearest(case.framework, vendor.images)}")
    return image_spec(
        vendor,
        case.framework,
        base_image=settings.test.BASE_IMAGE,
        pip_source=settings.test.PIP_SOURCE,
        pip_trusted_host=settings.test.PIP_TRUSTED_HOST,
        wheelhouse=settings.test.WHEELHOUSE,
        requirements=requirements,
        options=settings.test.IMAGE_OPTIONS,
    )


def _python(case: CaseSettings, settings: Settings, vendor: Vendor, local_python: str) -> str:
    if settings.test.PYTHON is not None:
        return settings.test.PYTHON
    if settings.test.in_containers:
        return vendor.images[case.framework].python if settings.test.IMAGE is None else "python3"
    return "python3" if settings.cluster.ssh_hosts else local_python


def _without_effect(settings: Settings) -> list[str]:
    """Settings that the user wrote and that nothing reads; a set value is never silently ignored."""
    written, touched = settings.test.model_fields_set, settings.cluster.model_fields_set
    warnings = []
    if not settings.test.in_containers:
        used = f"has no effect with RUNTIME {settings.test.RUNTIME!r}"
        warnings += [f"{key} {used}" for key in CONTAINERS_ONLY if key in written]
    else:
        warnings += _container_warnings(settings)
    if not settings.cluster.ssh_hosts:
        warnings += [f"{key} has no effect: localhost is reached without ssh" for key in REMOTE_ONLY if key in touched]
    if "NETWORK_INTERFACE" in touched and all(case.nnodes == 1 for case in settings.cases.values()):
        warnings.append("NETWORK_INTERFACE has no effect: no case runs on more than one host")
    finished = not settings.test.in_containers or settings.test.IMAGE is not None
    for name, case in settings.cases.items():
        if finished and "_" in case.framework:
            warnings.append(f"{name}.framework: the version in {case.framework!r} has no effect without an own image")
    return warnings


def _container_warnings(settings: Settings) -> list[str]:
    written, options = settings.test.model_fields_set, settings.test.ACCE_CONTAINER_OPT
    warnings = []
    if settings.test.IMAGE is not None:
        warnings += [f"{key} has no effect: IMAGE names a finished image" for key in BUILD_ONLY if key in written]
    elif (trusted := settings.test.PIP_TRUSTED_HOST) is not None:
        warnings.append(f"PIP_TRUSTED_HOST: packages come from {trusted} without proof that it is that host")
    if options is None:
        return warnings
    if options.shm_size is not None and "SHM_SIZE" in written:
        warnings.append("--shm-size of ACCE_CONTAINER_OPT has no effect: SHM_SIZE is set")
    if options.pids_limit is not None and "PIDS_LIMIT" in written:
        warnings.append("--pids-limit of ACCE_CONTAINER_OPT has no effect: PIDS_LIMIT is set")
    if options.ipc is not None and (options.shm_size is not None or "SHM_SIZE" in written):
        warnings.append(f"the shared memory size has no effect with --ipc {options.ipc} of ACCE_CONTAINER_OPT")
    if options.privileged:
        warnings.append(
            "ACCE_CONTAINER_OPT asks for --privileged: the containers are root on the hosts (docs/security.md)"
        )
    return warnings
