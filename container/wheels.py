"""Selects the wheels of a wheelhouse that an image needs."""

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from packaging.metadata import parse_email
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, NormalizedName, canonicalize_name, parse_wheel_filename


class WheelhouseError(ValueError):
    """The wheelhouse, or a file in it, is not usable; the message names it."""


def needed_wheels(wheelhouse: Path, names: Iterable[str]) -> list[Path]:
    """The wheels of the named distributions and of all they may require, sorted by file name.

    Environment markers are not evaluated (the image's Python does that), so the result may hold too many wheels, never
    too few. A name without a wheel is no error here: the base image may have it.

    Raises:
        WheelhouseError: the folder cannot be read, or a required wheel is missing or unusable.
    """
    if not wheelhouse.is_dir():
        raise WheelhouseError(f"wheelhouse {wheelhouse}: no such folder")
    there: dict[str, list[Path]] = {}
    for path in wheelhouse.glob("*.whl"):
        try:
            there.setdefault(parse_wheel_filename(path.name)[0], []).append(path)
        except InvalidWheelFilename as error:
            allowed = "name-version-python-abi-platform.whl"
            raise WheelhouseError(f"{path}: not the file name of a wheel ({allowed})") from error
    needed: dict[str, list[Path]] = {}
    waiting = [canonicalize_name(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in there:
            continue
        needed[name] = there[name]
        waiting.extend(required for path in there[name] for required in _requires(path))
    return sorted((path for paths in needed.values() for path in paths), key=lambda path: path.name)


def _requires(wheel: Path) -> list[NormalizedName]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            own = (name for name in archive.namelist() if name.count("/") == 1)
            metadata = next(name for name in own if name.endswith(".dist-info/METADATA"))
            lines = parse_email(archive.read(metadata))[0].get("requires_dist", [])
        return [_name(line) for line in lines]
    except (zipfile.BadZipFile, StopIteration, OSError, InvalidRequirement) as error:
        raise WheelhouseError(f"{wheel}: not a wheel: {str(error) or 'it has no METADATA'}") from error


def _name(line: str) -> NormalizedName:
    """The distribution of a Requires-Dist; old wheels have versions such as `>=5.1.*`, which pip takes.

    The marker is left out: parsing one in two threads at once fails now and then (cpython issue 106905).
    """
    try:
        return canonicalize_name(Requirement(line.partition(";")[0]).name)
    except InvalidRequirement:
        return canonicalize_name(Requirement(re.split(r"[\s(<>=!~;]", line, maxsplit=1)[0]).name)
