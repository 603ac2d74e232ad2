"""Finds the settings that a run began with in its folder, for a resume, and says how the files differ from them now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import JsonValue

from training.benchmarks.driver.protocol.case_config import CaseConfig, ConfigT, LoadedConfig
from training.benchmarks.driver.protocol.case_file import CaseFile, config_of
from training.benchmarks.driver.protocol.masking import MASK, mask_config
from training.benchmarks.driver.protocol.problems import ABSENT, ConfigError, Problem

CASES_FOLDER = "cases"  # of a run: <case folder>.json for each case
MAX_NAMED, MAX_CHARACTERS = 3, 60


def recorded_cases(folder: Path) -> dict[str, CaseFile]:
    """By case, what the run in `folder` keeps of its settings, without secrets; empty in runs of older versions.

    Raises:
        ConfigError: one cannot be read.
    """
    found = [CaseFile.read(path) for path in sorted((folder / CASES_FOLDER).glob("*.json"))]
    return {case.case: case for case in found}


class SettingsOrigin:
    """Where a case's settings come from: its files, or, where a run is resumed, what it began with.

    `warnings`: how the files differ from that now.
    """

    def __init__(self, recorded: CaseFile | None) -> None:
        self._recorded = recorded
        self.warnings: list[str] = []

    def settings(
        self, name: str, file: Path, config_class: type[CaseConfig], load: Callable[[], LoadedConfig[CaseConfig]]
    ) -> LoadedConfig[CaseConfig]:
        """The settings of the case `name`, whose config file is `file`; `load` reads that with the overrides.

        Raises:
            ConfigError: nothing is recorded and the files are wrong, or a secret, which no record has, was changed.
            ValueError: nothing is recorded, and the config file does not exist.
        """
        if self._recorded is None:
            return load()
        now, said = None, ""
        try:
            now = load()
            said = changes_since(self._recorded, now.config)
        except (ConfigError, ValueError) as error:
            said = str(error).replace("\n", "; ")
        if said:
            self.warnings.append(
                f"{name}: {file.name} or the case's overrides changed since the run began ({said}); "
                "the run goes on with what it began with"
            )
        config = restored(self._recorded, None if now is None else now.config, config_class)
        return LoadedConfig(config=config, origins=_origins(config, now))


def _origins(config: CaseConfig, now: LoadedConfig[CaseConfig] | None) -> dict[str, str]:
    """Where each value stands: as the files say where they agree, else in the run's own folder."""
    return {
        key: now.origins[key] if now is not None and getattr(now.config, key) == getattr(config, key) else CASES_FOLDER
        for key in type(config).model_fields
    }


def restored(recorded: CaseFile, now: CaseConfig | None, config_class: type[ConfigT]) -> ConfigT:
    """The settings that the run began with; a secret, which no record has, is taken from those of `now`.

    Args:
        now: what the files say; None where they cannot be read any more.

    Raises:
        ConfigError: a setting that was a secret, or contained one, was changed, or the code has other settings.
    """
    present: Mapping[str, JsonValue] = {} if now is None else now.model_dump(mode="json")
    masked = mask_config(present)
    same = {key for key, value in recorded.config.items() if key in masked and masked[key] == value}
    lost = [key for key, value in recorded.config.items() if key not in same and MASK in json.dumps(value)]
    path = Path(CASES_FOLDER) / recorded.case
    if lost:
        allowed = "expected as it was when the run began: it holds a secret, which no record has"
        raise ConfigError(Problem(str(path), key, ABSENT, allowed) for key in lost)
    values = {key: present[key] if key in same else value for key, value in recorded.config.items()}
    return config_of(values, config_class, path)


def changes_since(recorded: CaseFile, now: CaseConfig) -> str:
    """What differs between a run's recorded settings and those of the files, in words; empty where nothing does."""
    present = mask_config(now.model_dump(mode="json"))
    names = [key for key in {**recorded.config, **present} if recorded.config.get(key) != present.get(key)]
    said = [f"{key} was {_short(recorded.config.get(key))}, is {_short(present.get(key))}" for key in names[:MAX_NAMED]]
    more = [f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return ", ".join([*said, *more])


def _short(value: JsonValue) -> str:
    text = repr(value)
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}..."
