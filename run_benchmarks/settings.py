"""What a user edits, typed and validated: cluster_conf.py, test_conf.py and the cases they name.

Keys and their meaning are FlagPerf's where FlagPerf has them; README.md and docs/file-formats.md list the rest.
"""

from __future__ import annotations

import getpass
import ipaddress
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, field_validator, model_validator

from run_benchmarks.conf_file import nearest, read_names, validate
from run_benchmarks.container_options import ContainerOptions, parse_container_options, parse_size
from run_benchmarks.errors import ConfigError, Problem

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(\.(?!-)[A-Za-z0-9_-]{1,63})*\.?")
CASE_KEY_PARTS = ("model", "framework", "hardware", "nnodes", "nproc", "repeat")
CASE_NAME = re.compile(r"[A-Za-z0-9][\w.+-]*")


def _no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number, not True or False")
    return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's uid without a name
        return f"uid{os.getuid()}"


Count = Annotated[int, BeforeValidator(_no_bool), Field(ge=1)]
Port = Annotated[int, BeforeValidator(_no_bool), Field(ge=1, le=65535)]
Seconds = Annotated[float, BeforeValidator(_no_bool), Field(gt=0, allow_inf_nan=False)]
Size = Annotated[
    int, BeforeValidator(lambda value: parse_size(value) if isinstance(value, str) else value), Field(gt=0)
]


def _options(value: object) -> object:
    return parse_container_options(value) if isinstance(value, str) else value


Options = Annotated[ContainerOptions, BeforeValidator(_options)]


class ClusterConf(BaseModel):
    """cluster_conf.py: which hosts, and how to reach them."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    HOSTS: tuple[str, ...] = Field(min_length=1, description="a list of host names or IP addresses")
    SSH_PORT: Port = 22
    SSH_USER: str = Field(default_factory=_user, pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?$")
    SSH_KEY: Path | None = None
    KNOWN_HOSTS: Path = Path("~/.ssh/known_hosts")
    MASTER_PORT: Annotated[Port, Field(ge=1024)] = 29500
    NETWORK_INTERFACE: str = Field("auto", pattern=r"^[A-Za-z0-9_.@-]{1,15}$")
    LINK_LIMIT: Annotated[Seconds, Field(ge=5)] = 120.0

    @field_validator("HOSTS")
    @classmethod
    def _valid_hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        for host in hosts:
            if not _is_address(host) and not HOST_NAME.fullmatch(host):
                raise ValueError(f"{host!r} is neither a host name nor an IP address")
        repeated = sorted({host for host in hosts if hosts.count(host) > 1})
        if repeated:
            raise ValueError(f"each host once, but {', '.join(repeated)} stands there more than once")
        local = [host for host in hosts if host in LOCAL_NAMES]
        if local and len(hosts) > 1:
            raise ValueError(f"{local[0]!r} means nothing to the other hosts: write the name by which they reach it")
        return hosts

    @field_validator("SSH_KEY", "KNOWN_HOSTS")
    @classmethod
    def _expanded(cls, path: Path | None) -> Path | None:
        return path.expanduser() if path is not None else None

    @field_validator("SSH_KEY")
    @classmethod
    def _key_exists(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_file():
            raise ValueError(f"a private key file; there is none at {path}")
        return path


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class CaseSettings(BaseModel):
    """One benchmark case of test_conf.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(pattern=r"^[a-z][a-z0-9_]*$", description="a model of training/benchmarks/")
    framework: str = Field(pattern=r"^[a-z][a-z0-9_.]*$", description="a framework, such as 'pytorch'")
    config: str = Field(pattern=r"^\w+$", description="a file of vendors/<vendor>/<model>-<framework>/config/")
    repeat: Count = 1
    nnodes: Count = 1
    nproc: Count = Field(description="how many processes run on each host")
    data_dir_host: str | None = None
    data_dir_container: str | None = None
    time_limit: Seconds | None = None
    stall_limit: Seconds | None = None
    retries: Annotated[int, BeforeValidator(_no_bool), Field(ge=0)] = 0
    overrides: dict[str, JsonValue] = Field({}, description="settings of the case config to change for this case")

    @field_validator("data_dir_host", "data_dir_container")
    @classmethod
    def _absolute(cls, path: str | None) -> str | None:
        if not path:
            return None
        if not path.startswith("/"):
            raise ValueError(f"an absolute path, not {path!r}")
        return path

    @field_validator("overrides")
    @classmethod
    def _json(cls, overrides: dict[str, JsonValue]) -> dict[str, JsonValue]:
        json.dumps(overrides, allow_nan=False)  # they travel as JSON
        return overrides

    @model_validator(mode="after")
    def _both_or_none(self) -> CaseSettings:
        if (self.data_dir_host is None) != (self.data_dir_container is None):
            raise ValueError("data_dir_host and data_dir_container are set together or not at all")
        return self


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
    CLEAR_CACHES: bool = False
    BASE_IMAGE: str | None = None
    WHEELHOUSE: Path | None = None
    IMAGE: str | None = None
    IMAGE_OPTIONS: dict[str, str] = {}
    PYTHON: str | None = None
    MONITOR_INTERVAL: Annotated[Seconds, Field(ge=0.1, le=60)] = 1.0
    TIME_LIMIT: Seconds = 86400.0
    STALL_LIMIT: Seconds = 1800.0

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


def parse_case_key(key: str, data_path: object) -> dict[str, Any]:
    """FlagPerf's newer form: "model:framework:hardware:nnodes:nproc:repeat" -> data path (the same in the container).

    Raises:
        ValueError: another number of parts, a count that is no number, or a data path that is no text.
    """
    parts = key.split(":")
    if len(parts) != len(CASE_KEY_PARTS):
        raise ValueError(f"a key of {len(CASE_KEY_PARTS)} parts, {':'.join(CASE_KEY_PARTS)}; this has {len(parts)}")
    fields = dict(zip(CASE_KEY_PARTS, parts, strict=True))
    for name in ("nnodes", "nproc", "repeat"):
        if not fields[name].isdecimal() or int(fields[name]) < 1:
            raise ValueError(f"{name} is a number of at least 1, not {fields[name]!r}")
    if not isinstance(data_path, str | None):
        raise ValueError(f"a data path (text, '' for none), not {data_path!r}")
    return {
        "model": fields["model"],
        "framework": fields["framework"],
        "config": f"config_{fields['hardware']}x{fields['nnodes']}x{fields['nproc']}",
        "nnodes": int(fields["nnodes"]),
        "nproc": int(fields["nproc"]),
        "repeat": int(fields["repeat"]),
        "data_dir_host": data_path or None,
        "data_dir_container": data_path or None,
    }
