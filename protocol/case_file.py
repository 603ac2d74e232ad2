"""Writes and reads case.json, the settings of a case as the controller resolved them; tells what a rank runs with."""

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Self

from pydantic import BaseModel, JsonValue, ValidationError

from common.errors import ABSENT, InputProblems, Problem
from common.reading import read_bounded
from protocol import safe_json
from protocol.arguments import WorkloadArguments
from protocol.case_config import CaseConfig, ConfigT, load_case_config
from protocol.masking import mask_config
from protocol.perflog import SubmitInfo

CASE_FILE = "case.json"
CASE_SCHEMA_VERSION = 1


class CaseFile(BaseModel, frozen=True, extra="forbid"):
    """The settings that are written for a case: its name, its benchmark, and every setting with its resolved value."""

    schema_version: int = CASE_SCHEMA_VERSION
    case: str
    model: str
    framework: str
    config: dict[str, JsonValue]

    @functools.cached_property
    def text(self) -> str:
        """The file's text, the same for the same settings."""
        return json.dumps(self.model_dump(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    @functools.cached_property
    def sha256(self) -> str:
        """The sha256 of the file, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def masked(self) -> "CaseFile":
        """The same without tokens, passwords and keys."""
        return self.model_copy(update={"config": mask_config(self.config)})

    @classmethod
    def read(cls, path: Path) -> Self:
        """The file at `path`.

        Raises:
            InputProblems: it cannot be read, or is no case.json of this version.
        """
        return cls._parse(path, _bytes(path))

    @classmethod
    def _parse(cls, path: Path, data: bytes) -> Self:
        try:
            found = cls.model_validate(safe_json.load(data))
        except (safe_json.UnsafeJsonError, ValidationError) as error:
            raise InputProblems([Problem(str(path), "", ABSENT, f"is no {CASE_FILE}: {error}")]) from error
        if found.schema_version != CASE_SCHEMA_VERSION:
            allowed = f"expected {CASE_SCHEMA_VERSION}: another version of ClusterDyno wrote it"
            raise InputProblems([Problem(str(path), "schema_version", found.schema_version, allowed)])
        return found


def settings_of(
    arguments: WorkloadArguments, model: str, framework: str, config_class: type[ConfigT]
) -> tuple[ConfigT, str | None]:
    """The settings that a workload runs with, and the sha256 of its case.json (None without one).

    Args:
        arguments: with `case_file`, as the controller starts a rank, or with `config_file` and `overrides`.

    Raises:
        InputProblems: a file or an override is wrong; it lists all mistakes.
    """
    path = arguments.case_file
    if path is None:
        return load_case_config(config_class, arguments.config_file, arguments.overrides), None
    data = _bytes(path)
    found = CaseFile._parse(path, data)
    if (found.model, found.framework) != (model, framework):
        allowed = f"expected the settings of {model}:{framework}"
        raise InputProblems([Problem(str(path), "model:framework", f"{found.model}:{found.framework}", allowed)])
    return config_of(found.config, config_class, path), hashlib.sha256(data).hexdigest()


def submission(
    arguments: WorkloadArguments,
    model: str,
    framework: str,
    config: CaseConfig,
    case_sha256: str | None,
    *,
    torch: str = "",
    backend: str = "",
) -> SubmitInfo:
    """The value of a rank's SUBMIT_INFO: `config` and `case_sha256` as settings_of found them, secrets masked, and the
    numbers of ranks and nodes in torchrun's environment.

    Args:
        torch: its version, where the framework uses it.
        backend: of the process group, where there is one.
    """
    return SubmitInfo(
        vendor=arguments.vendor,
        model=model,
        framework=framework,
        case=arguments.case,
        case_sha256=case_sha256,
        config=mask_config(config.model_dump(mode="json")),
        world_size=int(os.environ["WORLD_SIZE"]),
        nnodes=int(os.environ["GROUP_WORLD_SIZE"]),
        torch=torch,
        backend=backend,
    )


def config_of(values: dict[str, JsonValue], config_class: type[ConfigT], path: Path) -> ConfigT:
    """The settings, validated from the values of the case.json at `path`.

    Raises:
        InputProblems: they are not valid settings of this benchmark; it lists all mistakes.
    """
    try:
        return config_class.model_validate_json(json.dumps(values))
    except ValidationError as error:
        raise InputProblems(
            Problem(str(path), f"config.{'.'.join(map(str, item['loc']))}", item["input"], item["msg"])
            for item in error.errors(include_url=False)
        ) from error


def lost_in_json(config: CaseConfig) -> list[str]:
    """Names of the settings whose value JSON cannot represent: writing and reading it fails, or changes it."""
    lost = []
    for name, value in config.model_dump(mode="json").items():
        try:
            text = json.dumps(value, allow_nan=False)
            if safe_json.load(text) != json.loads(text):
                lost.append(name)
        except ValueError:
            lost.append(name)
    if lost:
        return lost
    again = type(config).model_validate_json(config.model_dump_json())
    return [name for name in type(config).model_fields if getattr(again, name) != getattr(config, name)]


def _bytes(path: Path) -> bytes:
    try:
        return read_bounded(path, safe_json.MAX_BYTES)
    except OSError as error:
        raise InputProblems([Problem(str(path), "", ABSENT, f"cannot be read: {error.strerror}")]) from error
