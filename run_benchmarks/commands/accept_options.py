"""Reads the command line of an acceptance: what it asks for, and all that is refused before a host is reached."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

import vendors
from common.errors import MistakeList, input_problem
from common.reading import read_bounded
from common.whole_files import PRESENT
from run_benchmarks.acceptance.records import SCHEMA_VERSION, AcceptRecord
from run_benchmarks.acceptance.rungs import RUNGS, SINGLE
from run_benchmarks.commands.options import Request
from run_benchmarks.errors import InputProblems, Problem
from run_benchmarks.results.records import MAX_RECORD_BYTES
from run_benchmarks.settings.settings import Settings

BUDGET = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|m|h)")
_SECONDS = {"s": 1, "m": 60, "h": 3600}


@dataclass(frozen=True, kw_only=True)
class AcceptOptions:
    """Options of an acceptance as given. nproc: ranks of a host; None: as many as it has devices."""

    rungs: str
    budget: str
    nproc: int | None = None
    against: Path | None = None
    save_expected: Path | None = None
    force: bool = False
    detach: bool = False


class Asked(NamedTuple):
    """The task of an acceptance: its rungs, seconds for all of them, settings, the record it is held to."""

    rungs: list[str]
    budget_s: float
    settings: Settings
    earlier: AcceptRecord | None


def checked(asked: Request, options: AcceptOptions) -> Asked:
    """Read what a command line and its files ask for.

    Raises:
        InputProblems: all that is wrong in both.
    """
    mistakes = MistakeList()
    if options.detach:
        mistakes.add("--detach", None, "an acceptance has none: begin it with nohup or in tmux")
    with mistakes.noted():
        _refuse_cases(asked)
    names = mistakes.result(lambda: chosen_rungs(options.rungs)) or [*RUNGS]
    seconds = mistakes.result(lambda: budget_seconds(options.budget))
    if options.nproc is not None and options.nproc < 1:
        mistakes.add("--nproc", options.nproc, "expected at least 1")
    with mistakes.noted():
        _refuse_file(options.save_expected, names, force=options.force)
    against = options.against
    earlier = mistakes.result(lambda: recorded(against)) if against else None
    changes = asked.changes.model_copy(update={"cases": (), "repeat": None})
    with mistakes.noted():
        settings = asked._replace(changes=changes).settings()
        with mistakes.noted():
            refuse_vendor(settings)
        with mistakes.noted():
            _refuse_unnamed(settings)
        if earlier and against:
            refuse_unlike(earlier, against, settings.test.VENDOR, options.nproc)
    mistakes.check()
    return Asked(names, seconds, settings, earlier)


def budget_seconds(text: str) -> float:
    """Seconds of `90s`, `30m` or `2h`.

    Raises:
        InputProblems: the text has another form.
    """
    match = BUDGET.fullmatch(text.strip())
    seconds = float(match[1]) * _SECONDS[match[2]] if match else 0.0
    if not 0 < seconds < math.inf:
        raise InputProblems([Problem("--budget", "", text, "a time such as 90s, 30m or 2h")])
    return seconds


def chosen_rungs(text: str) -> list[str]:
    """The rungs of a comma list, in their own order.

    Raises:
        InputProblems: one is unknown.
    """
    named = [word.strip() for word in text.split(",")]
    unknown = [word for word in named if word not in RUNGS]
    if unknown:
        raise InputProblems([Problem("--rungs", "", word, f"some of {', '.join(RUNGS)}") for word in unknown])
    return [rung for rung in RUNGS if rung in named]


def recorded(path: Path) -> AcceptRecord:
    """The record of an earlier acceptance.

    Raises:
        InputProblems: it is none.
    """
    try:
        return AcceptRecord.model_validate_json(read_bounded(path, MAX_RECORD_BYTES))
    except (OSError, ValidationError) as error:
        allowed = f"the accept.json of an acceptance, of schema 8 to {SCHEMA_VERSION}: an older one is to be saved anew"
        raise InputProblems([Problem("--against", "", str(path), allowed)]) from error


def refuse_unlike(found: AcceptRecord, path: Path, vendor: str, nproc: int | None) -> None:
    """Refuse a record of another vendor or number of devices; None: any number."""
    nproc = found.nproc if nproc is None else nproc
    if (found.vendor, found.nproc) != (vendor, nproc):
        allowed = (
            f"an acceptance of {vendor} with --nproc {nproc}; this one is of {found.vendor}, --nproc {found.nproc}"
        )
        raise InputProblems([Problem("--against", "", str(path), allowed)])


def _refuse_cases(asked: Request) -> None:
    given = [("--case", word) for word in asked.changes.cases]
    if asked.changes.repeat is not None:
        given.append(("--repeat", str(asked.changes.repeat)))
    if given:
        allowed = "no effect: an acceptance has cases of its own; --rungs chooses among them"
        raise InputProblems([Problem(flag, "", word, allowed) for flag, word in given])


def _refuse_file(save_expected: Path | None, names: Sequence[str], *, force: bool) -> None:
    if save_expected is None:
        if force:
            raise input_problem("--force", None, "needs --save-expected, whose file it overwrites")
        return
    if SINGLE not in names:
        allowed = f"a file, with {SINGLE} among --rungs"
    elif save_expected.is_dir() or not save_expected.absolute().parent.is_dir():
        allowed = "a file in a folder that there is"
    elif save_expected.exists() and not force:
        allowed = f"{PRESENT}, or name another file"
    else:
        return
    raise InputProblems([Problem("--save-expected", "", str(save_expected), allowed)])


def refuse_vendor(settings: Settings) -> None:
    """Refuse a vendor whose ranks use no device."""
    vendor = vendors.load(settings.test.VENDOR)
    if vendor.device_type == "cpu" and vendor.monitor_name:
        allowed = "a vendor whose devices the ranks use: accept is not for this one, whose ranks compute on the CPU"
        raise InputProblems([Problem(settings.source("VENDOR"), "VENDOR", vendor.name, allowed)])


def _refuse_unnamed(settings: Settings) -> None:
    """Refuse hosts that Slurm chooses: each run would get others, so none could be tested again, or left out."""
    if settings.cluster.are_unnamed:
        allowed = "a list of the nodes' names: accept tests hosts again; or begin inside salloc with its hostlist"
        raise InputProblems([Problem(settings.source("HOSTS"), "HOSTS", len(settings.cluster.HOSTS), allowed)])
