"""Reads the settings that a run began with from its folder, for a resume, and reports how the files changed since."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from pydantic import JsonValue

from common.errors import ABSENT, InputProblems, Problem
from common.shortening import few, shortened
from protocol.case_config import CaseConfig, ConfigT, LoadedConfig
from protocol.case_file import CaseFile, config_of
from protocol.masking import MASK, mask_config

CASES_FOLDER = "cases"  # of a run: <case folder>.json for each case
MAX_NAMED, MAX_CHARACTERS = 3, 60


def recorded_cases(folder: Path) -> dict[str, CaseFile]:
    """The recorded settings of each case of the run in `folder`, without secrets; empty for runs of older versions.

    Raises:
        InputProblems: one cannot be read.
    """
    found = [CaseFile.read(path) for path in sorted((folder / CASES_FOLDER).glob("*.json"))]
    return {case.case: case for case in found}


class SettingsOrigin:
    """Provides the settings of cases: those of the files, or, for a resumed run, those that it began with.

    `warnings`: how the files changed since.
    """

    def __init__(self, recorded: CaseFile | None) -> None:
        self._recorded = recorded
        self.warnings: list[str] = []

    def settings(
        self, name: str, file: Path, config_class: type[CaseConfig], load: Callable[[], LoadedConfig[CaseConfig]]
    ) -> LoadedConfig[CaseConfig]:
        """The settings of the case `name`, whose config file is `file`; `load` reads that with the overrides.

        Raises:
            InputProblems: nothing is recorded and the files are wrong, or a secret, which is not recorded, changed.
            ValueError: nothing is recorded, and the config file does not exist.
        """
        if self._recorded is None:
            return load()
        now, said = None, ""
        try:
            now = load()
            said = changes_since(self._recorded, now.config)
        except (InputProblems, ValueError) as error:
            said = str(error).replace("\n", "; ")
        if said:
            self.warnings.append(
                f"{name}: {file.name} or the case's overrides changed since the run began ({said}); "
                "the run continues with the settings it began with"
            )
        config = restored(self._recorded, None if now is None else now.config, config_class)
        return LoadedConfig(config=config, origins=_origins(config, now))


def _origins(config: CaseConfig, now: LoadedConfig[CaseConfig] | None) -> dict[str, str]:
    """The origin of each value: its file if that still has the same value, else the run's own folder."""
    return {
        key: now.origins[key] if now is not None and getattr(now.config, key) == getattr(config, key) else CASES_FOLDER
        for key in type(config).model_fields
    }


def restored(recorded: CaseFile, now: CaseConfig | None, config_class: type[ConfigT]) -> ConfigT:
    """The settings that the run began with; secrets, which are never recorded, are taken from `now`.

    Args:
        now: the settings in the files; None if they can no longer be read.

    Raises:
        InputProblems: a setting that was a secret, or contained one, was changed, or the code has other settings.
    """
    present: Mapping[str, JsonValue] = {} if now is None else now.model_dump(mode="json")
    masked = mask_config(present)
    same = {key for key, value in recorded.config.items() if key in masked and masked[key] == value}
    lost = [key for key, value in recorded.config.items() if key not in same and MASK in json.dumps(value)]
    path = Path(CASES_FOLDER) / recorded.case
    if lost:
        allowed = "expected as it was when the run began: it holds a secret, which is never recorded"
        raise InputProblems(Problem(str(path), key, ABSENT, allowed) for key in lost)
    values = {key: present[key] if key in same else value for key, value in recorded.config.items()}
    return config_of(values, config_class, path)


def changes_since(recorded: CaseFile, now: CaseConfig) -> str:
    """The differences between a run's recorded settings and those of the files, in words; "" if there are none."""
    present = mask_config(now.model_dump(mode="json"))
    names = [key for key in {**recorded.config, **present} if recorded.config.get(key) != present.get(key)]
    said = [f"{key} was {_short(recorded.config.get(key))}, is {_short(present.get(key))}" for key in names]
    return few(said, MAX_NAMED)


def _short(value: JsonValue) -> str:
    return shortened(repr(value), MAX_CHARACTERS)
