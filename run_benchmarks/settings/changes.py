"""Changes of the configuration from the command line: --set K=V, --case NAME, --repeat N; kept in the journal."""

import fnmatch
from collections.abc import Collection, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

from pydantic import BaseModel

from common.errors import Problem
from protocol.case_config import parse_override
from protocol.masking import MASK, mask_argv, mask_output
from run_benchmarks.settings.case_names import case_name
from run_benchmarks.settings.conf_file import nearest

SET, CASE, REPEAT = "--set", "--case", "--repeat"


class Changes(BaseModel, frozen=True, extra="forbid"):
    """The values of --set (`key=value` words), --case (names or patterns) and --repeat; empty if not given.

    brings_cases: the command has cases of its own, so that CASES may be missing.
    """

    sets: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    repeat: int | None = None
    brings_cases: bool = False


class SetKeys:
    """The keys of --set, so that a mistake in one names --set as its place."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self.keys = list(keys)

    def source(self, file: str, key: str) -> str:
        """The place of the value of `key`: --set, `file`, or both for a rule over several keys."""
        if any(key == each or key.startswith((f"{each}.", f"{each}[")) for each in self.keys):
            return SET
        return f"{file} with {SET}" if any(each.startswith(f"{key}.") for each in self.keys) else file

    def sourced(self, problems: Iterable[Problem]) -> list[Problem]:
        """The problems, each with the place of its value."""
        return [problem._replace(file=self.source(problem.file, problem.key)) for problem in problems]


def apply_sets(
    words: Sequence[str],
    files: Sequence[tuple[MutableMapping[str, Any], Collection[str]]],
    definitions: Mapping[str, MutableMapping[str, Any]],
) -> tuple[SetKeys, list[Problem]]:
    """Apply the values of --set over those of the files.

    Args:
        words: `KEY=value`, `CASE.key=value` and `CASE.overrides.key=value`; the last word of a key wins.
        files: for each file the names it assigns, and the names of its settings.
        definitions: the cases by name.
    """
    given, problems = SetKeys(), []
    for word in words:
        try:
            key, value = parse_override(word)
        except ValueError:
            allowed = "KEY=value, CASE.key=value or CASE.overrides.key=value"
            problems.append(Problem(SET, "", word, allowed))
            continue
        if mask_argv([word]) != [word] or mask_output(word, ()) != word:
            allowed = "nothing secret: --set is kept in the run's journal. Write it in the file"
            problems.append(Problem(SET, key, MASK, allowed))
            continue
        place = next((names for names, settings in files if key in settings), None)
        inner = key
        if place is None:
            place, inner = _in_case(key, definitions)
        if place is None:
            problems.append(_unknown(key, value, files, definitions))
            continue
        place[inner] = value
        given.keys.append(key)
    return given, problems


def _in_case(
    key: str, definitions: Mapping[str, MutableMapping[str, Any]]
) -> tuple[MutableMapping[str, Any] | None, str]:
    """The dict with the setting of a case, and its name there; None if there is no such case."""
    owners = [name for name in definitions if case_name(key).startswith(f"{name}.")]
    if not owners:
        return None, key
    owner = max(owners, key=len)  # a name may contain dots
    inner = case_name(key)[len(owner) + 1 :]
    first, dot, rest = inner.partition(".")
    if first != "overrides" or not dot:
        return definitions[owner], inner
    overrides = definitions[owner].get("overrides", {})
    if not isinstance(overrides, dict):
        return definitions[owner], inner  # the mistake in it is reported elsewhere
    definitions[owner]["overrides"] = changed = dict(overrides)
    return changed, rest


def _unknown(
    key: str,
    value: object,
    files: Sequence[tuple[MutableMapping[str, Any], Collection[str]]],
    definitions: Mapping[str, MutableMapping[str, Any]],
) -> Problem:
    settings = [name for _, each in files for name in each]
    name, dot, _ = key.rpartition(".")
    if dot:
        return Problem(SET, key, value, f"no case {name!r}; {nearest(name, definitions)}")
    known_as = "keys of --set, beside CASE.key of a case and CASE.overrides.key of its config"
    return Problem(SET, key, value, "unknown key", known=tuple(sorted(settings)), known_as=known_as)


def narrowed(
    listed: Sequence[str], changes: Changes, defined: Collection[str]
) -> tuple[tuple[str, ...], list[Problem]]:
    """The cases of CASES that --case names, in the order of CASES; all of them without --case."""
    if not changes.cases:
        return tuple(listed), []
    problems, chosen = [], set()
    for pattern in map(case_name, changes.cases):
        found = [name for name in listed if fnmatch.fnmatchcase(name, pattern)]
        chosen.update(found)
        if not found:
            unlisted = fnmatch.filter(sorted(defined), pattern)
            hint = f"; {', '.join(unlisted)} is defined, but not in CASES" if unlisted else ""
            allowed = f"a name or pattern (*, ?) of CASES{hint}; {nearest(pattern, listed)}"
            problems.append(Problem(CASE, "", pattern, allowed))
    return tuple(name for name in listed if name in chosen), problems
