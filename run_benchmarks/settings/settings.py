"""Loads and validates what a user edits: cluster_conf.py, test_conf.py and the cases they name.

Keys and their meaning are FlagPerf's where FlagPerf has them; docs/reference/file-formats.md lists all of them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from common.errors import ABSENT, Problem
from protocol.config_file import read_config_file
from run_benchmarks.errors import InputProblems
from run_benchmarks.settings.case import CaseSettings, parse_case_key
from run_benchmarks.settings.case_names import ALLOWED, case_name, is_case_name, same_folder
from run_benchmarks.settings.changes import REPEAT, SET, Changes, SetKeys, apply_sets, narrowed
from run_benchmarks.settings.cluster import ClusterConf
from run_benchmarks.settings.conf_file import ModelT, helper_hint, sound_part, validate
from run_benchmarks.settings.run import TestConf
from run_benchmarks.settings.runtime_names import RUNTIMES
from run_benchmarks.settings.value_types import MOST_ROUNDS

KEYS_OF_CLUSTER, KEYS_OF_TEST, KEYS_OF_CASE = "keys of cluster_conf.py", "keys of test_conf.py", "keys of a case"
PATHS_OF_HEAD_NODE = ("BASELINE", "WHEELHOUSE")
# In the place of required values that are missing or wrong, while the rest is looked through for mistakes.
NO_HOSTS, NO_CASES = {"HOSTS": ["localhost"]}, {"VENDOR": "", "CASES": ["none"]}

T = TypeVar("T")


class Settings(BaseModel, frozen=True):
    """Both files, with every mistake in them reported; `resolve` looks up what the cases name.

    `cases` are those that CASES lists, `defined_cases` the names of all in the file, `undefined_cases` the listed ones
    that are not in it. `changes` are the command line's, which are already applied to all of these.

    Only the settings of a SettingsError have `broken_cases`, the listed ones with mistakes, as they are written, and
    `unknown`, the required keys without a usable value.
    """

    cluster: ClusterConf
    test: TestConf
    cases: dict[str, CaseSettings]
    defined_cases: tuple[str, ...]
    undefined_cases: tuple[str, ...]
    cluster_file: Path
    test_file: Path
    changes: Changes = Changes()
    set_keys: tuple[str, ...] = ()
    broken_cases: dict[str, Any] = {}
    unknown: frozenset[str] = frozenset()

    def source(self, key: str) -> str:
        """The place of the value of a key of test_conf.py, for a message: its file, or --set."""
        return SetKeys(self.set_keys).source(str(self.test_file), key)

    def origin(self, key: str) -> str:
        """The place of the value of a key of test_conf.py, file and key, in few words."""
        source = SetKeys(self.set_keys).source(self.test_file.name, key)
        return f"{source} {key}" if source == SET else f"{source}: {key}"


class SettingsError(InputProblems):
    """Mistakes in the two files. `sound` has what is right in them, so that its mistakes can be found, too."""

    def __init__(self, problems: Sequence[Problem], sound: Settings) -> None:
        self.sound = sound
        super().__init__(problems)


def load_settings(cluster_file: Path, test_file: Path, changes: Changes | None = None) -> Settings:
    """Read both files, apply the changes of the command line, and validate.

    Raises:
        SettingsError: the files have mistakes; the message lists all of them with file, key, value and what is allowed.
    """
    changes = changes or Changes()
    problems: list[Problem] = []
    unread: set[str] = set()  # required keys of files that cannot be read
    cluster_names = _names(cluster_file, NO_HOSTS, problems, unread)
    test_names = _names(test_file, NO_CASES, problems, unread)
    _place_paths(test_names, test_file)
    definitions = _definitions(test_names, test_file, problems)
    set_keys, found = apply_sets(
        changes.sets, [(cluster_names, ClusterConf.model_fields), (test_names, TestConf.model_fields)], definitions
    )
    problems += [] if unread else found
    if "CASES" in set_keys.keys:
        keyed, found = _keyed(test_names["CASES"], test_file)
        definitions = {**definitions, **keyed, **definitions}
        problems += set_keys.sourced(found)
    cluster, found, usable = _checked(ClusterConf, cluster_names, NO_HOSTS, cluster_file, KEYS_OF_CLUSTER)
    problems += set_keys.sourced(found)
    lacks_cases = changes.brings_cases and "CASES" not in test_names
    if lacks_cases:
        test_names["CASES"] = NO_CASES["CASES"]
    else:
        problems += _listed(test_names, definitions, changes, test_file)
    cases, found = _cases(definitions, changes, test_file)
    own = _picked(test_names, TestConf.model_fields)
    test, more, usable_of_test = _checked(TestConf, own, NO_CASES, test_file, KEYS_OF_TEST)
    problems += set_keys.sourced([*found, *more])
    if not {"RUNTIME", "LAUNCHER"} & {problem.key for problem in problems}:
        problems += set_keys.sourced(_pairing(cluster, test, test_file))
    usable |= usable_of_test
    listed = test.CASES if "CASES" in usable and not lacks_cases else ()
    undefined = [name for name in listed if name not in definitions]
    settings = Settings(
        cluster=cluster,
        test=test,
        cases=_picked(cases, listed),
        defined_cases=tuple(definitions),
        undefined_cases=tuple(filter(is_case_name, undefined)),
        cluster_file=cluster_file,
        test_file=test_file,
        changes=changes,
        set_keys=tuple(set_keys.keys),
        broken_cases=_picked(definitions, [name for name in listed if name not in cases]),
        unknown=frozenset((NO_HOSTS.keys() | NO_CASES.keys()) - usable),
    )
    _refuse(problems, unread, settings)
    return settings


def _refuse(problems: Sequence[Problem], unread: Collection[str], sound: Settings) -> None:
    """Go on only without mistakes; keys of a file that could not be read are none."""
    if problems:
        raise SettingsError([each for each in problems if each.key not in unread or each.value is not ABSENT], sound)


def _pairing(cluster: ClusterConf, test: TestConf, file: Path) -> list[Problem]:
    """A RUNTIME that does not run on the hosts of LAUNCHER, or cases beside others whose nodes are still to come."""
    if RUNTIMES[test.RUNTIME].launcher == cluster.LAUNCHER:
        if cluster.ALLOCATION == "case" and test.MAX_PARALLEL_CASES > 1:
            allowed = "expected 1, since ALLOCATION in cluster_conf.py is 'case'"
            return [Problem(str(file), "MAX_PARALLEL_CASES", test.MAX_PARALLEL_CASES, allowed)]
        return []
    fitting = " or ".join(repr(name) for name, entry in RUNTIMES.items() if entry.launcher == cluster.LAUNCHER)
    allowed = f"expected {fitting}, since LAUNCHER in cluster_conf.py is {cluster.LAUNCHER!r}"
    return [Problem(str(file), "RUNTIME", test.RUNTIME, allowed)]


def _picked(values: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    """The values of these names, without those that have none."""
    return {name: values[name] for name in names if name in values}


def _names(file: Path, required: Collection[str], problems: list[Problem], unread: set[str]) -> dict[str, Any]:
    try:
        return read_config_file(file)
    except InputProblems as error:
        problems += error.problems
        unread.update(required)
        return {}


def _checked(
    model: type[ModelT], names: dict[str, Any], stand_ins: dict[str, Any], file: Path, known_as: str
) -> tuple[ModelT, list[Problem], set[str]]:
    """The settings of a file, or what is sound of them; their mistakes; the required keys with a usable value."""
    settings, problems = validate(model, names, file=file, known_as=known_as)
    if settings is not None:
        return settings, problems, set(stand_ins)
    sound, usable = sound_part(model, names, stand_ins)
    return sound, problems, usable


def _place_paths(names: dict[str, Any], file: Path) -> None:
    """Make the head node's relative paths relative to the file that names them: a resume may begin in any folder."""
    for key in PATHS_OF_HEAD_NODE:
        value = names.get(key)
        if isinstance(value, str | Path) and not str(value).startswith("~"):
            names[key] = str(file.resolve().parent / value)


def _definitions(names: dict[str, Any], file: Path, problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Every case that the file defines, in either form, by name, as written."""
    definitions: dict[str, dict[str, Any]] = {}
    listed = names.get("CASES")
    asked = {case_name(name) for name in listed if isinstance(name, str)} if isinstance(listed, list | tuple) else set()
    for name, value in names.items():
        if name in TestConf.model_fields:
            continue
        if isinstance(value, dict) and (name in asked or value.keys() & CaseSettings.model_fields.keys()):
            definitions[name] = dict(value)
        else:
            problems.append(_unknown(name, value, file, asked))
    keyed, found = _keyed(listed, file)
    problems += found
    return definitions | keyed


def _keyed(listed: object, file: Path) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """The cases that CASES itself defines where it is a dict of case keys, and what is wrong with these."""
    definitions: dict[str, dict[str, Any]] = {}
    problems = []
    for key, data_path in listed.items() if isinstance(listed, dict) else ():
        try:
            definitions[case_name(str(key))] = parse_case_key(str(key), data_path)
        except ValueError as error:
            problems.append(Problem(str(file), "CASES", key, str(error)))
    return definitions, problems


def _unknown(name: str, value: object, file: Path, asked: Collection[str]) -> Problem:
    if name in ClusterConf.model_fields:
        return Problem(str(file), name, value, "a key of cluster_conf.py: write it there")
    known = [*TestConf.model_fields, *(asked if isinstance(value, dict) else ())]
    return Problem(str(file), name, value, helper_hint(name), tuple(sorted(known)), KEYS_OF_TEST)


def _listed(
    names: dict[str, Any], definitions: dict[str, dict[str, Any]], changes: Changes, file: Path
) -> list[Problem]:
    """Check CASES and replace it by the list of names to run."""
    given = names.get("CASES")
    has_keys = isinstance(given, dict)  # a mistake in one is already reported
    if isinstance(given, dict):
        names["CASES"] = given = tuple(case_name(str(key)) for key in given)
    if not isinstance(given, list | tuple) or not all(isinstance(name, str) for name in given):
        return []  # reported by the model
    listed = tuple(map(case_name, given))
    problems = []
    for index, name in enumerate(listed):
        if name not in definitions and not has_keys and not is_case_name(name):
            hint = f"; with data paths, keys are those of a dict: CASES = {{{name!r}: '<data path>'}}"
            allowed = f"expected {ALLOWED}{hint if ':' in name else ''}"
            problems.append(Problem(str(file), f"CASES[{index}]", name, allowed))
        elif name in listed[:index]:
            problems.append(Problem(str(file), f"CASES[{index}]", name, "expected each case once"))
    for one, other in same_folder(dict.fromkeys(listed)):
        allowed = f"expected another name: its results would be in one folder with those of {one!r}"
        problems.append(Problem(str(file), "CASES", other, allowed))
    chosen, found = narrowed(listed, changes, definitions)
    names["CASES"] = chosen or listed
    return [*problems, *found]


def _cases(
    definitions: dict[str, dict[str, Any]], changes: Changes, file: Path
) -> tuple[dict[str, CaseSettings], list[Problem]]:
    problems: list[Problem] = []
    cases: dict[str, CaseSettings] = {}
    if changes.repeat is not None and not 1 <= changes.repeat <= MOST_ROUNDS:
        problems.append(Problem(REPEAT, "", changes.repeat, f"expected a whole number from 1 to {MOST_ROUNDS}"))
    for name, definition in definitions.items():
        case, found = validate(CaseSettings, definition, file=file, prefix=f"{name}.", known_as=KEYS_OF_CASE)
        problems += found
        if case is not None:
            cases[name] = case if changes.repeat is None else case.model_copy(update={"repeat": changes.repeat})
    return cases, problems
