"""What a user edits, typed and validated: cluster_conf.py, test_conf.py and the cases they name.

Keys and their meaning are FlagPerf's where FlagPerf has them; README.md and docs/file-formats.md list the rest.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from run_benchmarks.case_settings import CaseSettings, parse_case_key
from run_benchmarks.cluster_settings import ClusterConf
from run_benchmarks.conf_file import nearest, read_names, validate
from run_benchmarks.errors import ConfigError, Problem
from run_benchmarks.setting_types import Count, Options, Seconds, Size
from training.benchmarks.network import baseline

CASE_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")


class TestConf(BaseModel):
    """test_conf.py: which vendor, runtime and cases, and where things live on the hosts."""

    __test__ = False  # not a test class, whatever pytest makes of the name
    model_config = ConfigDict(frozen=True, extra="forbid")

    VENDOR: str = Field(description="a folder of vendors/")
    CASES: tuple[str, ...] = Field(min_length=1, description="a list of case names, or a dict of case keys")
    RUNTIME: Literal["docker", "process"] = "docker"
    TEST_TYPE: Literal["default"] = "default"
    ACCE_CONTAINER_OPT: Options | None = None
    ACCE_VISIBLE_DEVICE_ENV_NAME: str | None = Field(None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$|^$")
    PIP_SOURCE: str | None = Field(None, pattern=r"^https?://\S+$")
    FLAGPERF_PATH_HOST: str | None = None
    FLAGPERF_PATH_CONTAINER: str = "/workspace/clusterdyno"
    FLAGPERF_LOG_PATH_HOST: str | None = None
    FLAGPERF_LOG_PATH_CONTAINER: str = "/workspace/result"
    FLAGPERF_LOG_LEVEL: Literal["debug", "info", "warning", "error"] = "info"
    SHM_SIZE: Size = 8 << 30
    PIDS_LIMIT: Count = 32768
    MAX_COLLECT_BYTES: Size = 16 << 30
    MAX_COLLECT_FILES: Count = 20_000
    MAX_OUTPUT_BYTES: Annotated[Size, Field(ge=4 << 10, le=8 << 20)] = 1 << 20
    CLEAR_CACHES: bool = False
    BASE_IMAGE: str | None = None
    WHEELHOUSE: Path | None = None
    IMAGE: str | None = None
    IMAGE_OPTIONS: dict[str, str] = {}
    PYTHON: str | None = None
    MONITOR_INTERVAL: Annotated[Seconds, Field(ge=0.1, le=60)] = 1.0
    TIME_LIMIT: Seconds = 86400.0
    STALL_LIMIT: Seconds = 1800.0
    RUN_TIME_LIMIT: Seconds | None = None
    BASELINE: Path | None = None
    BASELINE_PERCENT: Annotated[float, Field(gt=0)] = 10.0

    @field_validator(
        "FLAGPERF_PATH_HOST", "FLAGPERF_PATH_CONTAINER", "FLAGPERF_LOG_PATH_HOST", "FLAGPERF_LOG_PATH_CONTAINER"
    )
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if not path.startswith("/") or ".." in path.split("/") or path.strip("/") == "":
            raise ValueError(f"an absolute path without '..', not {path!r}")
        return "/" + path.strip("/")

    @field_validator("FLAGPERF_LOG_LEVEL", mode="before")
    @classmethod
    def _lower(cls, level: object) -> object:
        return level.lower() if isinstance(level, str) else level

    @field_validator("WHEELHOUSE")
    @classmethod
    def _wheelhouse(cls, path: Path | None) -> Path | None:
        if path is None:
            return None
        path = path.expanduser()
        if not path.is_dir() or not any(path.glob("*.whl")):
            raise ValueError(f"a folder with wheels (pip download -d {path} -r requirements/workload.txt)")
        return path

    @field_validator("BASELINE")
    @classmethod
    def _baseline(cls, path: Path | None) -> Path | None:
        if path is not None:
            try:
                baseline.load(path.expanduser())
            except baseline.BaselineError as error:
                raise ValueError(f"a file of `run.py --save-baseline`: {error}") from error
        return path and path.expanduser()

    @field_validator("BASELINE_PERCENT")
    @classmethod
    def _of_a_baseline(cls, percent: float, info: ValidationInfo) -> float:
        if info.data.get("BASELINE", "") is None:
            raise ValueError("nothing without BASELINE, which it belongs to")
        return percent

    @model_validator(mode="after")
    def _folders_apart(self) -> TestConf:
        if f"{self.FLAGPERF_PATH_CONTAINER}/".startswith(f"{self.FLAGPERF_LOG_PATH_CONTAINER}/"):
            raise ValueError(
                f"FLAGPERF_LOG_PATH_CONTAINER {self.FLAGPERF_LOG_PATH_CONTAINER!r} would hide FLAGPERF_PATH_CONTAINER "
                f"{self.FLAGPERF_PATH_CONTAINER!r}: another folder, or one inside it"
            )
        return self


class Settings(BaseModel):
    """Both files, each mistake in them reported; what the cases name is looked up by `resolve`.

    `cases` are those that CASES lists, `defined_cases` the names of all in the file, `undefined_cases` the listed ones
    that are not in it.
    """

    model_config = ConfigDict(frozen=True)
    cluster: ClusterConf
    test: TestConf
    cases: dict[str, CaseSettings]
    defined_cases: tuple[str, ...]
    undefined_cases: tuple[str, ...]
    cluster_file: Path
    test_file: Path


def load_settings(cluster_file: Path, test_file: Path) -> Settings:
    """Read and validate both files.

    Raises:
        ConfigError: every mistake of both files, each with file, key, value and what is allowed.
    """
    problems: list[Problem] = []
    cluster = test = None
    cases: dict[str, CaseSettings] = {}
    names: dict[str, Any] = {}
    try:
        cluster, found = validate(ClusterConf, read_names(cluster_file), file=cluster_file)
        problems += found
    except ConfigError as error:
        problems += error.problems
    try:
        names = read_names(test_file)
        cases, found = _read_cases(names, test_file)
        problems += found
        test, found = validate(TestConf, {k: v for k, v in names.items() if k in TestConf.model_fields}, file=test_file)
        problems += found
    except ConfigError as error:
        problems += error.problems
    if cluster is None or test is None or problems:
        raise ConfigError(problems)
    if test.BASELINE is not None and not any(
        cases[name].model == baseline.MODEL for name in test.CASES if name in cases
    ):
        allowed = f"nothing, or at least one case of model {baseline.MODEL!r} in CASES: others have no baseline"
        raise ConfigError([Problem(str(test_file), "BASELINE", str(test.BASELINE), allowed)])
    undefined = tuple(name for name in test.CASES if name not in cases)
    chosen = {name: cases[name] for name in test.CASES if name in cases}
    return Settings(
        cluster=cluster,
        test=test,
        cases=chosen,
        defined_cases=tuple(cases),
        undefined_cases=undefined,
        cluster_file=cluster_file,
        test_file=test_file,
    )


def _read_cases(names: dict[str, Any], file: Path) -> tuple[dict[str, CaseSettings], list[Problem]]:
    """Every case the file defines, in either form; `names["CASES"]` becomes the list of names to run."""
    problems: list[Problem] = []
    definitions: dict[str, dict[str, Any]] = {}
    listed = names.get("CASES")
    asked = [name for name in listed if isinstance(name, str)] if isinstance(listed, list | tuple) else []
    for name, value in names.items():
        if name in TestConf.model_fields:
            continue
        if isinstance(value, dict) and (name in asked or value.keys() & CaseSettings.model_fields.keys()):
            definitions[name] = value
        else:
            known = [*TestConf.model_fields, *definitions]
            problems.append(Problem(str(file), name, value, f"unknown key; {nearest(name, known)}"))
    if isinstance(listed, dict):
        names["CASES"] = tuple(map(str, listed))
        for key, data_path in listed.items():
            try:
                definitions[str(key)] = parse_case_key(str(key), data_path)
            except ValueError as error:
                problems.append(Problem(str(file), "CASES", key, str(error)))
    elif isinstance(listed, list | tuple):
        problems += [
            Problem(str(file), f"CASES[{index}]", name, "a case's name: letters, digits, '_', '-', '.', '+'; each once")
            for index, name in enumerate(listed)
            if isinstance(name, str) and (not CASE_NAME.fullmatch(name) or name in listed[:index])
        ]
    cases: dict[str, CaseSettings] = {}
    for name, definition in definitions.items():
        case, found = validate(CaseSettings, definition, file=file, prefix=f"{name}.")
        problems += found
        if case is not None:
            cases[name] = case
    return cases, problems
