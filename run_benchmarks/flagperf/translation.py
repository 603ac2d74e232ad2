"""Translates a whole FlagPerf tree in memory; nothing is written here, or at all if the tree has mistakes."""

import re
import shlex
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vendors
from common.errors import ABSENT, Problem, closest
from run_benchmarks.errors import InputProblems
from run_benchmarks.flagperf.case_configs import Line, translate_config
from run_benchmarks.flagperf.keys import BUILD_VARIABLES, CASE_KEYS, CLUSTER, FRAMEWORKS, MODELS, TEST, Fate
from run_benchmarks.flagperf.reading import Conf, read_conf
from run_benchmarks.settings.case import parse_case_key
from run_benchmarks.settings.container_options import parse_container_options
from run_benchmarks.settings.settings import load_settings
from training.benchmarks.catalog import available, benchmark, without_version
from vendors.case_files import REQUIREMENTS


@dataclass(frozen=True)
class Case:
    """A case: our name for it, FlagPerf's own model and framework folder, and our settings except `config`."""

    name: str
    model: str
    framework: str
    config: str
    settings: dict[str, Any]

    @property
    def ranks(self) -> int:
        """How many processes it runs on all hosts; 1 where a count is wrong, which the settings' check tells."""
        counts = (self.settings.get("nnodes", 1), self.settings.get("nproc", 1))
        return counts[0] * counts[1] if all(isinstance(count, int) and count > 0 for count in counts) else 1


def read_cases(values: dict[str, Any], file: Path, lines: list[Line], problems: list[Problem]) -> list[Case]:
    """The cases of a test_conf.py that have a benchmark here; the others are reported as left out."""
    listed = values.get("CASES")
    if not isinstance(listed, dict | list):
        problems.append(Problem(str(file), "CASES", listed, "expected a dict of case keys, or a list of keys or names"))
        return []
    cases: list[Case] = []
    for key in listed:
        definition = values.get(str(key))
        try:
            if isinstance(definition, dict):
                lines += [
                    Line(file, f"{key}.{each}", "unknown", "no key of a case of FlagPerf's")
                    for each in definition.keys() - set(CASE_KEYS)
                ]
                fields = {each: definition[each] for each in CASE_KEYS if each in definition}
            else:
                fields = parse_case_key(str(key), listed[key] if isinstance(listed, dict) else None)
        except ValueError as error:
            problems.append(Problem(str(file), "CASES", key, str(error)))
            continue
        missing = [each for each in ("model", "framework", "config", "nproc") if each not in fields]
        if missing:
            problems.append(Problem(str(file), str(key), definition, f"lacks {', '.join(missing)}"))
            continue
        case = _case(str(key), fields, file, lines)
        if case is not None:
            cases.append(case)
    if not cases and not problems:
        allowed = f"no case has a benchmark here; there are {', '.join(sorted(MODELS))} with {', '.join(FRAMEWORKS)}"
        problems.append(Problem(str(file), "CASES", list(listed), allowed))
    return cases


def _case(key: str, fields: dict[str, Any], file: Path, lines: list[Line]) -> Case | None:
    model, framework = str(fields["model"]), str(fields["framework"])
    package = without_version(framework)
    ours = MODELS.get(model.lower())
    if ours is None or (ours, FRAMEWORKS.get(package)) not in available():
        what = f"model {model!r}" if ours is None else f"{ours} in framework {framework!r}"
        near = closest(model, MODELS) if ours is None else None
        hint = f"; the nearest is {near!r}" if near else ""
        lines.append(Line(file, key, "left out", f"there is no {what} here{hint}"))
        return None
    name = key if key.isidentifier() else re.sub(r"\W", "_", key).upper()
    note = f"{name} = {{'model': {ours!r}, 'framework': {FRAMEWORKS[package]!r}, ...}}"
    lines.append(Line(file, key, "renamed" if name != key or ours != model else "kept", note if name != key else ""))
    settings = {each: fields[each] for each in CASE_KEYS[3:] if fields.get(each) not in (None, "")}
    if "data_dir_host" not in settings:
        lines.append(Line(file, f"{key}: data path", "by hand", "none is given; write data_dir_host and _container"))
    return Case(
        name=name,
        model=model,
        framework=package,
        config=str(fields["config"]),
        settings={"model": ours, "framework": FRAMEWORKS[package], **settings},
    )


_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")


def read_variables(path: Path) -> tuple[dict[str, str], list[Line]]:
    """The variables whose values are plain, and a line for every variable of the file."""
    variables: dict[str, str] = {}
    lines: list[Line] = []
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = _ASSIGNMENT.fullmatch(text)
        if match is None:
            continue
        name, raw = match.groups()
        where = f"line {number}"
        if name in BUILD_VARIABLES:
            lines.append(Line(path, name, "meaningless", f"{where}: it is for a build of FlagPerf's own kernels"))
        elif "$" in raw or "`" in raw:
            lines.append(
                Line(path, name, "by hand", f"{where}: computed by the shell; write its value into the .env file")
            )
        else:
            try:
                variables[name] = " ".join(shlex.split(raw, comments=True))
            except ValueError as error:
                lines.append(Line(path, name, "by hand", f"{where}: {error}"))
                continue
            lines.append(Line(path, name, "kept", "in <config>_flagperf.env"))
    return variables, lines


CONFIG = Path("run_benchmarks") / "config"
CLUSTER_FILE, TEST_FILE = CONFIG / "flagperf_cluster_conf.py", CONFIG / "flagperf_test_conf.py"
NETWORK_HOST = ("--net=host", "--network=host", "--net host", "--network host")


@dataclass
class Translation:
    """The outcome of each key, our files by their path in the repository, and the tree's mistakes."""

    lines: list[Line] = field(default_factory=list)
    files: dict[Path, str] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


def translate(tree: Path) -> Translation:
    """Translate FlagPerf's repository, or its folder `training`."""
    done = Translation()
    training = tree / "training" if (tree / "training").is_dir() else tree
    cluster_file, test_file = training / CONFIG / "cluster_conf.py", training / CONFIG / "test_conf.py"
    for file in (cluster_file, test_file):
        if not file.is_file():
            done.problems.append(Problem(str(file), "", ABSENT, "no such file: expected a FlagPerf repository"))
    if done.problems:
        return done
    cluster, test = (read_conf(file, None, done.problems) for file in (cluster_file, test_file))
    if cluster is None or test is None:
        return done
    done.files[CLUSTER_FILE] = _text("Cluster", _renamed(cluster, CLUSTER, (), done))
    cases = read_cases(test.values, test_file, done.lines, done.problems)
    named = [str(key) for key in test.values.get("CASES") or ()]
    settings = _renamed(test, TEST, (*named, "CASES"), done)
    _container_options(settings, test_file, done)
    if isinstance(vendor := settings.get("VENDOR"), str):
        definitions = _case_files(training, vendor, cases, test_file, done)
        settings["CASES"] = list(definitions)
        done.files[TEST_FILE] = _text("Test", settings | definitions)
        _check(cluster_file, test_file, done)
    done.lines = list(dict.fromkeys(done.lines))
    return done


def _text(what: str, values: dict[str, Any]) -> str:
    return f'"""{what} configs, translated from FlagPerf\'s."""\n\n' + "".join(
        f"{key} = {value!r}\n" for key, value in values.items()
    )


def _renamed(conf: Conf, fates: dict[str, Fate], own: tuple[str, ...], done: Translation) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for key, value in conf.values.items():
        fate = fates.get(key)
        if key in own or key.startswith("_"):
            continue
        if fate is None and isinstance(value, dict):
            done.lines.append(Line(conf.path, key, "left out", "a case that CASES does not name"))
        elif fate is None:
            done.lines.append(Line(conf.path, key, "unknown", "no key of FlagPerf's that is known: not translated"))
        elif fate.to is None:
            done.lines.append(Line(conf.path, key, "meaningless", fate.why))
        else:
            try:
                settings[fate.to] = value if fate.convert is None else fate.convert(value)
            except (TypeError, ValueError):
                done.problems.append(Problem(str(conf.path), key, value, f"expected {fate.why}"))
                continue
            done.lines.append(
                Line(conf.path, key, "kept" if fate.to == key else "renamed", "" if fate.to == key else fate.to)
            )
    return settings


def _container_options(settings: dict[str, Any], file: Path, done: Translation) -> None:
    key = "ACCE_CONTAINER_OPT"
    if not isinstance(text := settings.get(key), str):
        return
    for option in NETWORK_HOST:
        if option in text:
            text = text.replace(option, "")
            done.lines.append(Line(file, f"{key} {option}", "meaningless", "containers share the host's network"))
    settings[key] = text = text.strip()
    try:
        parse_container_options(text)
    except ValueError as error:
        done.problems.append(Problem(str(file), key, text, str(error)))


def _case_files(
    training: Path, vendor: str, cases: list[Case], test_file: Path, done: Translation
) -> dict[str, dict[str, Any]]:
    """Our definitions of the cases by name; their configs and the files beside them are added to `done.files`."""
    if vendor not in vendors.available():
        allowed = f"there is no such vendor here yet; vendors/ has {', '.join(vendors.available())}"
        done.problems.append(Problem(str(test_file), "VENDOR", vendor, allowed))
        return {}
    for folder in sorted(training.glob("*/*-*/config")):
        if (other := folder.parts[-3]) != vendor:
            note = f"VENDOR is {vendor!r}"
            done.lines.append(Line(training / other, folder.parts[-2], "left out", note))
    definitions: dict[str, dict[str, Any]] = {}
    for case in cases:
        theirs = training / vendor / f"{case.model}-{case.framework}" / "config"
        file = theirs / f"{case.config}.py"
        if not file.is_file():
            there = ", ".join(sorted(path.stem for path in theirs.glob("*.py"))) or "none"
            done.problems.append(Problem(str(test_file), case.name, case.config, f"no file {file}; there are {there}"))
            continue
        model, framework = case.settings["model"], case.settings["framework"]
        base = training / "benchmarks" / case.model / case.framework / "config" / "_base.py"
        config_class = benchmark(model, framework).config_class
        found = translate_config(f"{model}:{framework}", file, base, config_class, case.ranks)
        done.lines += found.lines
        done.problems += found.problems
        ours = Path("vendors") / vendor / f"{model}-{framework}"
        text = found.text(str(file.relative_to(training)))
        name = _config_name(case, ours, text, done)
        done.files[ours / "config" / f"{name}.py"] = text
        definitions[case.name] = {**case.settings, "config": name}
        _variables(theirs, ours / "config" / f"{name}.env", done)
        _requirements(theirs, ours, done)
    return definitions


def _config_name(case: Case, ours: Path, text: str, done: Translation) -> str:
    """A name for the translated config: another one where the number of ranks makes another config of the same file."""
    name = f"{case.config}_flagperf"
    same = done.files.get(ours / "config" / f"{name}.py", text) == text
    return name if same else f"{case.config}_{case.ranks}_ranks_flagperf"


def _variables(theirs: Path, ours: Path, done: Translation) -> None:
    """Translate environment_variables.sh for one config."""
    script = theirs / "environment_variables.sh"
    if not script.is_file():
        return
    variables, lines = read_variables(script)
    done.lines += lines
    if variables:
        done.files[ours] = "".join(f"{name}={value}\n" for name, value in variables.items())


def _requirements(theirs: Path, ours: Path, done: Translation) -> None:
    """Tell of each package of requirements.txt, in either of FlagPerf's places, that ours are named elsewhere."""
    why = f"for FlagPerf's code; the packages of ours are in its image, and in {ours / REQUIREMENTS} if there is one"
    for file in (theirs / REQUIREMENTS, theirs.parent / REQUIREMENTS):
        for raw in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else ():
            if package := raw.partition("#")[0].strip():
                done.lines.append(Line(file, package, "meaningless", why))


def _check(cluster_file: Path, test_file: Path, done: Translation) -> None:
    """Check that our two files are valid; a mistake in them comes from one of the tree's files."""
    with tempfile.TemporaryDirectory() as folder:
        cluster, test = Path(folder) / CLUSTER_FILE.name, Path(folder) / TEST_FILE.name
        paths = {cluster: cluster_file, test: test_file}
        for path in paths:
            path.write_text(done.files[CONFIG / path.name], encoding="utf-8")
        try:
            load_settings(cluster, test)
        except InputProblems as error:
            by_name = {str(path): str(theirs) for path, theirs in paths.items()}
            told = {(problem.file, problem.key) for problem in done.problems}
            for problem in error.problems:
                moved = Problem(by_name.get(problem.file, problem.file), problem.key, problem.value, problem.allowed)
                if (moved.file, moved.key) not in told and not (problem.key == "CASES" and done.problems):
                    done.problems.append(moved)
