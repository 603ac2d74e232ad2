"""Reads the files beside a case's configs: packages (requirements.txt) and environment variables (an env file)."""

import re
from pathlib import Path

REQUIREMENTS = "requirements.txt"
ENVIRONMENT = Path("config") / "environment_variables.env"

_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_REFUSED = {
    "apex": "PyPI's apex is a web-login toolkit, not NVIDIA's; use a base image that carries NVIDIA's, or build_apex"
}


class CaseFileError(ValueError):
    """A file of a case is wrong; the message names the file, the line, its content and what is allowed."""

    def __init__(self, path: Path, line: int, problem: str) -> None:
        super().__init__(f"{path}, line {line}: {problem}")
        self.path = path
        self.line = line


def case_requirements(directory: Path) -> tuple[Path, ...]:
    """(directory/requirements.txt,) if the case has one, else (); checked line by line.

    Only this file is copied into an image build, so it may name distributions only: no pip options, no other files.

    Raises:
        CaseFileError: the file cannot be read or a line is wrong.
    """
    path = directory / REQUIREMENTS
    if not path.is_file():
        return ()
    for number, name in requirement_names(path):
        if name in _REFUSED:
            raise CaseFileError(path, number, f"{name!r} is refused: {_REFUSED[name]}")
    return (path,)


def requirement_names(path: Path) -> list[tuple[int, str]]:
    """(line number, normalized distribution name) of each line in a pip requirements file.

    Raises:
        CaseFileError: a line is wrong.
    """
    # The hosts import this module, too, and read no requirements: there the package may be missing.
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    names: list[tuple[int, str]] = []
    for number, raw in enumerate(_lines(path), start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        if not line:
            continue
        if line.startswith("-"):
            raise CaseFileError(
                path, number, f"{line!r} is a pip option; only distributions are allowed, e.g. 'h5py==3.16.0'"
            )
        try:
            names.append((number, canonicalize_name(Requirement(re.sub(r"\s--hash=\S+", "", line)).name)))
        except InvalidRequirement as error:
            expected = f"expected e.g. 'h5py==3.16.0' ({str(error).splitlines()[0]})"
            raise CaseFileError(path, number, f"{line!r} is no requirement; {expected}") from error
    return names


def case_environment(directory: Path, config: str = "") -> dict[str, str]:
    """Variables of directory/config/environment_variables.env, and over them those of <config>.env beside it; in the
    files' order, {} if there is neither.

    Docker's env-file syntax: `KEY=VALUE`, the value verbatim to the end of the line, `#` starts a comment line. A bare
    `KEY` (Docker would take the caller's value) is an error: a run must not depend on the head node's environment.

    Raises:
        CaseFileError: the file cannot be read or a line is wrong.
    """
    common = directory / ENVIRONMENT
    own = common.with_name(f"{config}.env")
    return {**_variables(common), **(_variables(own) if config else {})}


def _variables(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    variables: dict[str, str] = {}
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, separator, value = line.lstrip().partition("=")
        if not separator:
            raise CaseFileError(path, number, f"{line!r} sets no value; expected KEY=VALUE")
        if not _VARIABLE.match(key):
            raise CaseFileError(
                path, number, f"{key!r} is no variable name; expected letters, digits and _, as in KEY=VALUE"
            )
        if key in variables:
            raise CaseFileError(path, number, f"{key!r} is set twice")
        variables[key] = value
    return variables


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise CaseFileError(path, line, f"not UTF-8: {error.reason}") from error
