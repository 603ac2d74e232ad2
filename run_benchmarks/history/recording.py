"""Puts a run that ended into the history, in a child process: a file system that hangs must not hang the run.

A run whose database does not answer in time, or refuses, goes into a file of this user's home, and a sentence says so.
The run's folder is what counts: `run.py history --rebuild` puts every run of a result folder into the history again.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from common.errors import in_brief
from run_benchmarks.console.command_line import ROOT, own_command
from run_benchmarks.errors import ClusterDynoError, HistoryError
from run_benchmarks.results.loading import RUN_FILE, LoadError, load_run

TIME_LIMIT_S = 30.0
FILE = "history.sqlite"


def default_url(root: Path) -> str:
    """The history beside the runs of a result folder."""
    return f"sqlite:///{root.absolute() / FILE}"


def url_of(history: str | None, root: Path) -> str:
    """The history that a setting HISTORY names for the runs of a result folder; "" if it is off."""
    return "" if history == "off" else history or default_url(root)


def fallback_url() -> str:
    """The history in this user's home, for runs that no other can take."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    folder = Path(home) / "clusterdyno"
    folder.mkdir(parents=True, exist_ok=True)
    return default_url(folder)


def record(folder: Path, owner: str, url: str, seconds: float = TIME_LIMIT_S) -> str:
    """Put the run in `folder` into the history; returns what went wrong, in words, "" if nothing did."""
    if not (problem := _in_a_child(folder, owner, url, seconds)):
        return ""
    try:
        beside = fallback_url()
        lost = _in_a_child(folder, owner, beside, TIME_LIMIT_S)
    except (OSError, RuntimeError) as error:  # of a user without a home folder, too
        beside, lost = "", str(error)
    kept = f"nor could it be kept elsewhere: {lost}" if lost else f"it is kept in {beside.removeprefix('sqlite:///')}"
    return f"this run is not in the history: {problem}; {kept}. Later: {own_command('history', '--rebuild')}"


def _in_a_child(folder: Path, owner: str, url: str, seconds: float) -> str:
    """As `record`, without a second place."""
    return ask_a_child(__name__, {"folder": str(folder.absolute()), "owner": owner, "url": url}, seconds)[1]


def ask_a_child(module: str, asked: Mapping[str, object], seconds: float) -> tuple[Any, str]:
    """The answer of a process of this module (`answer_parent`), and what went wrong, in words, "" if nothing did."""
    try:
        child = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # what it warns of as it ends is no answer
            text=True,
            errors="replace",
            start_new_session=True,  # a Ctrl-C at the end of the run leaves it alone
        )
        said, warned = child.communicate(json.dumps(asked), timeout=seconds)  # no argument: a URL may hold a password
    except subprocess.TimeoutExpired:
        child.kill()  # and no wait: a process in a system call that hangs does not end
        return None, f"its database did not answer within {seconds:g} s"
    except OSError as error:
        return None, f"its process failed: {error}"
    last = (said.strip() or warned.strip() or f"exit code {child.returncode}").splitlines()[-1]
    if child.returncode != 0:
        return None, last
    try:
        return json.loads(last), ""
    except ValueError:
        return None, f"its process failed: {last}"


def answer_parent(action: Callable[[Any], object]) -> None:
    """Print, in such a process, what `action` makes of the question on stdin, as JSON, or what went wrong."""
    try:
        print(json.dumps(action(json.loads(sys.stdin.read()))))
    except ClusterDynoError as error:
        print(error)
        sys.exit(1)


def rebuild(root: Path, owner: str, url: str) -> Iterator[tuple[str, str]]:
    """Put every run of a result folder into the history again; yields each with what went wrong, "" if nothing did.

    Raises:
        HistoryError: the history cannot be written.
    """
    from sqlalchemy.exc import DataError, IntegrityError

    from run_benchmarks.history.database import Database
    from run_benchmarks.history.store import keep

    database = Database(url)
    try:
        for file in sorted(root.glob(f"run*/{RUN_FILE}")):
            try:
                keep(database, load_run(file.parent), owner)
            except LoadError as error:
                yield file.parent.name, str(error)
            except Exception as error:  # the folder may be anybody's: what it holds costs that run alone
                if isinstance(error, HistoryError) and not isinstance(error.__cause__, DataError | IntegrityError):
                    raise
                yield file.parent.name, f"{file}: {in_brief(error)}"
            else:
                yield file.parent.name, ""
    finally:
        database.close()


def _keep(asked: dict[str, str]) -> None:
    from run_benchmarks.history.database import Database
    from run_benchmarks.history.store import keep

    database = Database(asked["url"])
    keep(database, load_run(asked["folder"]), asked["owner"])
    database.close()


if __name__ == "__main__":
    answer_parent(_keep)
