"""Checks the data folder and initial weights of a training in any framework. Needs neither torch nor Paddle."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from common.shortening import few
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.workload.usage import UnusableSettingsError

_SHOWN = 3


class _HasData(Protocol):
    @property
    def data(self) -> str: ...


def data_folder(config: _HasData, data_dir: Path | None) -> Path | None:
    """The folder that the data comes from; None for synthetic data.

    Raises:
        UnusableSettingsError: a folder is needed and not given, or given and not used (DataError: it does not exist).
    """
    if config.data == "files":
        if data_dir is None:
            raise UnusableSettingsError("data = 'files' needs a data folder: give --data_dir, or data = 'synthetic'")
        if not data_dir.is_dir():
            raise DataError(data_dir, "no such folder (data_dir)")
        return data_dir
    if data_dir is not None:
        raise UnusableSettingsError(f"--data_dir {data_dir} has no effect with data = 'synthetic'; set data = 'files'")
    return None


def check_numbers(path: Path, types: Mapping[str, str], allowed: Collection[str]) -> None:
    """Check that weights are plain numbers: quantized ones have the shapes of others and mean something else.

    Args:
        path: the file that they are in.
        types: the type of each weight's numbers, by its name.
        allowed: the types that hold weights as they are.

    Raises:
        DataError: one has another type; the message has the first three.
    """
    problems = [f"{name} holds {kind}" for name, kind in types.items() if kind not in allowed]
    if problems:
        shown = few(problems, _SHOWN, "; ")
        raise DataError(path, f"does not hold weights as they are: {shown}; expected {', '.join(allowed)}")


def check_shapes(path: Path, found: Mapping[str, tuple[int, ...]], wanted: Mapping[str, tuple[int, ...]]) -> None:
    """Check that the weights `found` in a file, by name, have the shapes that the model's parameters have.

    Raises:
        DataError: one is missing or has another shape; the message has the first three.
    """
    problems = [f"{name} is missing" for name in wanted if name not in found]
    problems += [
        f"{name} has shape {list(found[name])}, the model's has {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name] != shape
    ]
    if problems:
        raise DataError(path, f"does not fit the model (init_checkpoint): {few(problems, _SHOWN, '; ')}")
