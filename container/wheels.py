"""Selects the wheels of a wheelhouse that an image needs."""

import re
import zipfile
from collections.abc import Iterable
from pathlib import Path

from vendors.case_files import normalised

# A wheel's file name begins with the distribution's name, escaped to contain no dash (binary distribution format).
_NAME = re.compile(r"^(?P<name>[^-]+)-[^-]+(-[^-]+){3,4}\.whl$")
_REQUIRES = re.compile(r"^Requires-Dist:\s*(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)", re.MULTILINE)


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
        match = _NAME.match(path.name)
        if match is None:
            raise WheelhouseError(f"{path}: not the file name of a wheel (name-version-python-abi-platform.whl)")
        there.setdefault(normalised(match["name"]), []).append(path)
    needed: dict[str, list[Path]] = {}
    waiting = [normalised(name) for name in names]
    while waiting:
        name = waiting.pop()
        if name in needed or name not in there:
            continue
        needed[name] = there[name]
        waiting.extend(required for path in there[name] for required in _requires(path))
    return sorted((path for paths in needed.values() for path in paths), key=lambda path: path.name)


def _requires(wheel: Path) -> list[str]:
    try:
        with zipfile.ZipFile(wheel) as archive:
            metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
            text = archive.read(metadata).decode("utf-8", errors="replace")
    except (zipfile.BadZipFile, StopIteration, OSError) as error:
        raise WheelhouseError(f"{wheel}: not a wheel: {error or 'it has no METADATA'}") from error
    return [normalised(match["name"]) for match in _REQUIRES.finditer(text)]
