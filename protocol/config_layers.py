"""Reads the files of one case config: the benchmark's base.py, the files that it extends, and the file itself.

`extends = "config_H100x1x8"` in a case config names another file of the same folder, or one of those that all vendors
have: its values apply where the extending file sets none. base.py, beside the benchmark's config.py, applies below all
of them. A file serves further names with `serves = ["config_H200x1x8"]`; a user's file of that name counts first.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from common.errors import InputProblems, Problem, closest
from protocol.config_file import SERVES, common_folder, read_config_file

BASE_FILE = "base.py"
EXTENDS = "extends"
# Limit of files in a chain of `extends`, the first included: a reader should find a value quickly.
MOST_FILES = 4

_CONFIG_NAME = re.compile(r"[A-Za-z0-9_]+")
_NOTHING = object()  # None is a value that `extends` may wrongly have


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One file and the names that it assigns, without `extends` and `serves`."""

    path: Path
    values: dict[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    """All files of a case config, base.py first and the case's own last, and what is wrong with their chain.

    If there are `problems`, files are missing, and the values may be incomplete.
    """

    files: tuple[Layer, ...]
    problems: tuple[Problem, ...]


def base_file(config_class: type) -> Path | None:
    """base.py beside the module that defines a benchmark's settings; None if it does not exist."""
    module = getattr(sys.modules.get(config_class.__module__), "__file__", None)
    path = None if module is None else Path(module).with_name(BASE_FILE)
    return path if path is not None and path.is_file() else None


def read_layers(path: Path, base: Path | None) -> Layers:
    """Execute the case config `path`, the files it extends and `base`, each once."""
    chain: list[Layer] = []
    problems: list[Problem] = []
    current: Path | None = path
    while current is not None:
        try:
            values = read_config_file(current)
        except InputProblems as error:
            problems += error.problems
            break
        extended, served = values.pop(EXTENDS, _NOTHING), values.pop(SERVES, [])
        if not isinstance(served, list) or not all(
            isinstance(each, str) and _CONFIG_NAME.fullmatch(each) for each in served
        ):
            message = f"allowed: a list of names of case configs, as in {SERVES} = ['config_H200x1x8']"
            problems.append(Problem(str(current), SERVES, served, message))
        chain.append(Layer(path=current, values=values))
        if extended is _NOTHING:
            break
        refusal = _refusal([layer.path for layer in chain], extended)
        if refusal is not None:
            problems.append(refusal)
            break
        current = _extended(current, str(extended))
    if base is not None:
        try:
            chain.append(_root(base))
        except InputProblems as error:
            problems += error.problems
    return Layers(files=tuple(reversed(chain)), problems=tuple(problems))


def _root(base: Path) -> Layer:
    values = read_config_file(base)
    if EXTENDS in values:
        message = f"{BASE_FILE} is below all config files and extends none"
        raise InputProblems([Problem(str(base), EXTENDS, values[EXTENDS], message)])
    return Layer(path=base, values=values)


def _extended(path: Path, name: str) -> Path:
    """The file that `path` names: of its own folder, else of the folder that all vendors have."""
    own, common = path.with_name(f"{name}.py"), common_folder(path.parent) / f"{name}.py"
    return common if common.is_file() and (own == path or not own.is_file()) else own


def _refusal(chain: list[Path], extended: object) -> Problem | None:
    """Why the last file of `chain` cannot extend `extended`; None if it can."""
    path = chain[-1]
    files = [*path.parent.glob("*.py"), *common_folder(path.parent).glob("*.py")]
    others = sorted({file.stem for file in files if file != path})
    allowed = f"the name of another config file of this folder, without '.py': {', '.join(others) or 'there is none'}"
    near = closest(extended.removesuffix(".py"), others) if isinstance(extended, str) else None
    hint = f"; did you mean {near!r}?" if near else ""
    if not isinstance(extended, str) or not _CONFIG_NAME.fullmatch(extended):
        message = f"is not the name of a config file{hint}"
    elif _extended(path, extended) in chain:
        message = f"the chain is a cycle: {_shown([*chain, path.with_name(extended)])}"
    elif extended not in others:
        message = f"no file {extended}.py in {path.parent}{hint}"
    elif len(chain) == MOST_FILES:
        message, allowed = (
            f"too long a chain: {_shown([*chain, path.with_name(extended)])}",
            f"up to {MOST_FILES} files",
        )
    else:
        return None
    return Problem(str(path), EXTENDS, extended, f"{message}; allowed: {allowed}")


def _shown(chain: list[Path]) -> str:
    return " -> ".join(path.stem for path in chain)
