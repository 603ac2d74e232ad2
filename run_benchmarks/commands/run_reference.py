"""Finds a run by its name or the path of its result folder, and the files that it was started with by its journal."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from common.errors import ABSENT, Problem
from common.shortening import shortened
from protocol.config_file import read_config_file
from run_benchmarks.console.command_line import DEFAULT_RESULTS
from run_benchmarks.errors import InputProblems
from run_benchmarks.history.recording import default_url, url_of
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run
from run_benchmarks.results.records import CaseRecord
from run_benchmarks.session.run_folder import RUN_ID
from run_benchmarks.settings.conf_file import nearest
from run_benchmarks.settings.settings import Settings
from run_benchmarks.state.journal import JOURNAL_FILE, Journal, RunStarted
from run_benchmarks.state.vouching import is_own

SHOWN_CHARACTERS = 200
NOT_OWN = "nothing shows that you began this run on this head node"
OF_ACCEPTANCES = "the accept.html of an acceptance names its runs, and has the lines that drain its hosts"
OWN = "See docs/explanation/security.md, Received results"


def find_run(word: str, test_conf: Path | None, default_test: Path) -> Path:
    """The result folder of a run.

    A name is searched in the result folder of test_conf, in result/ of the repository and of the working directory.

    Args:
        word: the run's name or the path of its folder.
        test_conf: the file that the user named, if any.

    Raises:
        InputProblems: there is no such run.
    """
    if (folder := existing_run(word, test_conf, default_test)) is not None:
        return folder
    roots = _roots(test_conf, default_test)
    there = {path.name for root in roots for path in root.glob("run*") if RUN_ID.fullmatch(path.name)}
    allowed = f"expected the name of a run in {' or '.join(map(str, roots))}, or the path of its result folder"
    close = OF_ACCEPTANCES if Path(word).name.startswith("accept") else nearest(word, there)
    raise InputProblems([Problem("RUN", "", word, f"{allowed}; {close}")])


def existing_run(word: str, test_conf: Path | None, default_test: Path) -> Path | None:
    """As `find_run`, but None if there is no such run."""
    if os.sep in word or (Path(word) / JOURNAL_FILE).is_file():
        folder = Path(word).resolve()
        return folder if folder.is_dir() and RUN_ID.fullmatch(folder.name) else None
    if not RUN_ID.fullmatch(word):
        return None
    return next((root / word for root in _roots(test_conf, default_test) if (root / word).is_dir()), None)


def find_baseline(word: str, test_conf: Path | None, default_test: Path) -> Path:
    """The file of a baseline: its path, or its name, with or without .json, in a folder in which runs are searched.

    Raises:
        InputProblems: there is no such file.
    """
    roots = _roots(test_conf, default_test)
    places = [Path(word).expanduser()]
    if os.sep not in word:
        places += [root / name for root in roots for name in (word, f"{word}.json")]
    if (found := next((place for place in places if place.is_file()), None)) is not None:
        return found
    there = {path.name.removesuffix(".json") for root in roots for path in root.glob("*.json")}
    allowed = f"expected a baseline's file, or its name in {' or '.join(map(str, roots))}"
    raise InputProblems([Problem("compare", "--baseline", word, f"{allowed}; {nearest(word, there)}")])


def loaded(arguments: argparse.Namespace, command: str, default_test: Path) -> LoadedRun:
    """The run that a command line names.

    Raises:
        InputProblems: there is no such run, or its folder is damaged.
    """
    return loaded_run(arguments.run_id, arguments.test_conf, command, default_test)


def loaded_run(word: str, test_conf: Path | None, command: str, default_test: Path) -> LoadedRun:
    """As `loaded`, of the run that a word names."""
    folder = find_run(word, test_conf, default_test)
    try:
        return load_run(folder)
    except LoadError as error:
        raise InputProblems([Problem(command, "RUN", ABSENT, str(error))]) from error


def case_of(run: LoadedRun, name: str, command: str) -> CaseRecord:
    """The case of that name.

    Raises:
        InputProblems: the run has none.
    """
    by_name = {case.name: case for case in run.record.cases}
    if name not in by_name:
        known = f"expected a case of {run.record.run_id}; {nearest(name, by_name)}"
        raise InputProblems([Problem(command, "CASE", name, known)])
    return by_name[name]


def _roots(test_conf: Path | None, default_test: Path) -> Sequence[Path]:
    """Folders with runs, in search order; the default file may be invalid, since the run need not belong to it."""
    found = []
    for file in (test_conf, default_test):
        try:
            found += [] if file is None else [results_of(file)]
        except InputProblems:
            if file is test_conf:
                raise
    found += [DEFAULT_RESULTS, Path.cwd() / "result", Path.cwd()]
    return list(dict.fromkeys(folder.resolve() for folder in found))


def results_of(test_conf: Path) -> Path:
    """The folder on the head node for the runs of a test_conf.py.

    Raises:
        InputProblems: the file cannot be read, or its value is no path.
    """
    names = {key: value for key, value in read_config_file(test_conf).items() if key == "FLAGPERF_LOG_PATH_HOST"}
    folder = names.get("FLAGPERF_LOG_PATH_HOST")
    return Path(folder) if isinstance(folder, str) else DEFAULT_RESULTS


def history_of(test_conf: Path) -> tuple[Path, str]:
    """The folder with the runs of a test_conf.py, and the history that they are kept in, as an SQLAlchemy URL.

    Raises:
        InputProblems: the file cannot be read, or it keeps no history.
    """
    root, url = results_of(test_conf), read_config_file(test_conf).get("HISTORY")
    if url == "off":
        raise InputProblems([Problem(str(test_conf), "HISTORY", url, "keeps no history: expected none or a database")])
    return root, url if isinstance(url, str) else default_url(root)


def history_beside(folder: Path, test_conf: Path | None) -> str:
    """The history that the run in `folder` belongs to, as an SQLAlchemy URL; "" if test_conf.py keeps none.

    Raises:
        InputProblems: the file cannot be read.
    """
    url = None if test_conf is None else read_config_file(test_conf).get("HISTORY")
    return url_of(url if isinstance(url, str) else None, folder.parent)


def typical_seconds(folder: Path, test_conf: Path | None, cases: Sequence[str]) -> dict[str, float]:
    """Seconds of a round of these cases by the history that the run in `folder` will be kept in.

    Raises:
        HistoryError: it cannot be read.
    """
    from run_benchmarks.history.database import Database  # takes long to import
    from run_benchmarks.history.store import seconds_of_a_round

    url = history_of(test_conf)[1] if test_conf is not None else default_url(folder.parent)
    database = Database(url)
    try:
        return seconds_of_a_round(database, cases)
    finally:
        database.close()


def started_with(folder: Path) -> RunStarted:
    """The last start of the run in a folder.

    Raises:
        JournalError: the folder has no readable journal.
    """
    return Journal(folder).read().started


def settings_of(folder: Path, cluster_conf: Path | None, test_conf: Path | None) -> Settings:
    """The settings of a run from the files that its journal names, with the changes of its command line.

    These files are Python: they are executed, and the changes applied, only for a run that this user began on this head
    node. For any other one the user names the files.

    Args:
        cluster_conf, test_conf: files that the user names instead.

    Raises:
        JournalError: the run has no journal.
        InputProblems: a file is missing, is not to be trusted, or has mistakes.
    """
    from run_benchmarks.session.preparation import checked_settings  # takes long to import

    started = started_with(folder)
    trusted, problems = is_own(folder, started), []
    files = (
        ("--cluster-conf", cluster_conf, started.cluster_conf),
        ("--test-conf", test_conf, started.test_conf),
    )
    journal = str(folder / JOURNAL_FILE)
    for option, given, recorded in files:
        if given is None and (allowed := _why_not(recorded, option, trusted)):
            problems.append(Problem(journal, "", ABSENT, allowed))
    if not trusted and started.changes is not None and started.changes.sets:
        allowed = f"{NOT_OWN}, so what it sets is not applied: write it in the file. {OWN}"
        problems.append(Problem(journal, "changes", _short(" ".join(started.changes.sets)), allowed))
    if problems:
        raise InputProblems(problems)
    cluster, test = (given or Path(recorded) for _, given, recorded in files)
    return checked_settings(cluster, test, started.changes)


def _why_not(recorded: str, option: str, trusted: bool) -> str:
    """Why a file that a journal names is not used, in words; "" if it is."""
    if not trusted:
        return (
            f"{NOT_OWN}, so the file that it names ({_short(recorded)}) is not executed: name your own file with "
            f"{option}. {OWN}"
        )
    if not Path(recorded).is_file():
        return f"the run was begun with {recorded}, which is no longer there; name the file with {option}"
    return ""


def _short(text: str) -> str:
    return repr(shortened(text, SHOWN_CHARACTERS))
