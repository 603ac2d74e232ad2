"""Translates a whole FlagPerf tree in memory; nothing is written here, or at all if the tree has mistakes."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vendors
from common.errors import ABSENT, Problem
from run_benchmarks.errors import InputProblems
from run_benchmarks.flagperf.case_configs import translate_config
from run_benchmarks.flagperf.cases import Case, read_cases
from run_benchmarks.flagperf.keys import CLUSTER, TEST, Fate
from run_benchmarks.flagperf.lines import Line
from run_benchmarks.flagperf.reading import Conf, read_conf
from run_benchmarks.flagperf.shell_file import read_variables
from run_benchmarks.settings.container_options import parse_container_options
from run_benchmarks.settings.settings import load_settings
from training.benchmarks.catalog import benchmark
from vendors.case_files import REQUIREMENTS

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
