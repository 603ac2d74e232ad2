"""Starts or resumes a run, in the foreground or detached from the terminal."""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from common.errors import stated
from run_benchmarks.commands.detaching import CONSOLE_FILE, go_to_the_background
from run_benchmarks.commands.diagnose import Ladder, Rung, ladder_case
from run_benchmarks.commands.outcome_console import show_outcomes
from run_benchmarks.commands.run_reference import NOT_OWN
from run_benchmarks.console.command_line import ROOT, own_command, run_word
from run_benchmarks.console.console import LOG, complain, outliving, say
from run_benchmarks.console.language import words
from run_benchmarks.console.terminal import BANNER, CONSOLE, print_table, start_logging, stop_logging
from run_benchmarks.errors import InputProblems, InterruptedRunError
from run_benchmarks.history.recording import record as record_run
from run_benchmarks.history.recording import url_of
from run_benchmarks.hosts.slurm.absence import SilentSlurmError, answered
from run_benchmarks.hosts.slurm.allocation import AllocationError
from run_benchmarks.plan.recorded import recorded_cases
from run_benchmarks.results.drain import drain_rows
from run_benchmarks.results.loading import RUN_FILE
from run_benchmarks.results.records import RunRecord, Verdict
from run_benchmarks.results.seal import SEAL_FILE, SIGNATURE_FILE
from run_benchmarks.results.signature import sign_seal
from run_benchmarks.results.standards import refusal
from run_benchmarks.results.summary import case_rows
from run_benchmarks.session.allocation import allocated, is_inside, submit_controller
from run_benchmarks.session.collection import Collection, is_owing
from run_benchmarks.session.learning import baseline_in_use, is_baseline_of
from run_benchmarks.session.preparation import PreparedRun, connected, prepare
from run_benchmarks.session.run_folder import new_run_folder, new_run_id, owner_of, result_root
from run_benchmarks.session.session import Session
from run_benchmarks.settings.host_selection import selected
from run_benchmarks.settings.settings import Settings
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_USAGE
from run_benchmarks.state.interruption import Interruption
from run_benchmarks.state.journal import (
    BaselineTarget,
    Journal,
    JournalError,
    JournalState,
    RunEnded,
    RunStarted,
    noted_job,
)
from run_benchmarks.state.run_lock import controlling, is_controlled
from run_benchmarks.state.vouching import is_own

UMASK = 0o027  # results are for the user and the group


def start(settings: Settings, *, detach: bool = False, learn: BaselineTarget | None = None) -> tuple[int, Path | None]:
    """Run everything; returns the exit code and the run's folder, None if none could be made.

    Raises:
        InputProblems: the settings are wrong; nothing has been written then.
    """
    os.umask(UMASK)
    named = _named(prepare(settings, new_run_id()))
    if named is None:
        return EXIT_USAGE, None
    prepared, folder = named
    return _control(prepared, folder, detach=detach, learn=learn), folder


def _kept_target(folder: Path, started: RunStarted) -> BaselineTarget | None:
    """Where the run's start asked to save a baseline; None, after a message, if somebody else's journal asks for it."""
    target = started.save_baseline
    if target is None or is_own(folder, started):
        return target
    complain(f"warning: no baseline is saved to {target.file}: {NOT_OWN}")
    return None


def refuse_target(learn: BaselineTarget | None, run: str = "") -> None:
    """Before anything runs; a baseline that the resumed `run` saved itself is replaced.

    Raises:
        InputProblems: no baseline can be saved there.
    """
    if learn is not None:
        problem = refusal(learn.file, overwrite=learn.overwrite or is_baseline_of(learn.file, run))
        if problem is not None:
            raise InputProblems(stated([problem]))


def _named(prepared: PreparedRun) -> tuple[PreparedRun, Path] | None:
    """The run, named after a new result folder, and that folder; None, after a message, if none can be made."""
    root = result_root(prepared.settings)
    try:
        folder = new_run_folder(root)
        return prepared.named(folder.name, owner_of(root)), folder
    except OSError as error:
        complain(unwritable(error, root, "FLAGPERF_LOG_PATH_HOST in test_conf.py names another folder"))
        return None


def resume(settings: Settings, folder: Path, *, detach: bool) -> int:
    """Resume the run in `folder`, whose controller has ended; returns the exit code.

    A baseline that the run was started with --save-baseline for is saved at the end.

    Raises:
        JournalError: it has no journal, a controller works on it, or config files changed since the run started.
    """
    past = Journal(folder).read()
    prepared, learn = _as_begun(settings, folder, past), _kept_target(folder, past.started)
    refuse_target(learn, folder.name)
    return _control(prepared, folder, detach=detach, learn=learn)


def collect(settings: Settings, folder: Path) -> int:
    """Collect what the run in `folder`, whose controller has ended, still has on its hosts alone.

    Returns:
        0 if everything is on the head node then, and sealed, else 1.

    Raises:
        JournalError: as `resume`.
    """
    past = Journal(folder).read()
    prepared, learn = _as_begun(settings, folder, past), _kept_target(folder, past.started)
    if not is_owing(past):
        say(words("{run}: nothing is to be collected", run=folder.name))
        has_ended = past.run_ended is not None and (folder / RUN_FILE).is_file()
        return _seal_late(prepared, folder) if has_ended else EXIT_PASS
    refuse_target(learn, folder.name)
    _control(prepared, folder, detach=False, learn=learn, kind=Collection)
    return EXIT_FAIL if is_owing(Journal(folder).read()) else EXIT_PASS


def _seal_late(prepared: PreparedRun, folder: Path) -> int:
    """Do what a controller that was killed between its last note and its seal's signature left; returns the exit code.

    A seal that is there is signed and not renewed: it vouches for the files as that controller left them.
    """
    key, problem = prepared.settings.test.SEAL_KEY, ""
    with controlling(folder):
        is_sealed = (folder / SEAL_FILE).exists()
        if is_sealed and (key is None or (folder / SIGNATURE_FILE).exists()):
            return EXIT_PASS
        start_logging("error", folder / "run.log")
        try:
            if not is_sealed:
                session = Session(prepared, folder, Interruption(""), sys.argv)
                seal = session.seal()
                say(words("{run} had no seal. Sealed as it is now: sha256 {seal}", run=folder.name, seal=seal))
                problem = session.not_saved
            elif key is not None:
                problem = sign_seal(folder, key)
                LOG.info("%s late: %s", SIGNATURE_FILE, problem or "signed")
        finally:
            stop_logging()
    if problem:
        complain(problem)
    return EXIT_FAIL if problem else EXIT_PASS


def _as_begun(settings: Settings, folder: Path, past: JournalState) -> PreparedRun:
    """The run in `folder` as it was begun.

    Raises:
        JournalError: see `resume`.
    """
    os.umask(UMASK)
    if is_controlled(folder):
        raise JournalError(f"{folder}: a controller works on this run; see `{own_command('status', run_word(folder))}`")
    narrowed = selected(settings, past.started.hosts)
    recorded = recorded_cases(folder) if is_own(folder, past.started) else None  # they hold paths
    prepared = prepare(narrowed, folder.name, recorded).named(folder.name, owner_of(folder.parent))
    if prepared.digest() != past.started.plan_digest:
        raise JournalError(
            f"{folder}: cannot be resumed: the plan changed since the run started, "
            f"from {past.started.cluster_conf} and {past.started.test_conf}; "
            f"now it is from {settings.cluster_file} and {settings.test_file}. "
            "Bring these files and the code back to that state, or start a new run"
        )
    if past.started.baseline != (now := baseline_in_use(settings.test)):
        raise JournalError(
            f"{folder}: cannot be resumed: it began with {past.started.baseline or 'no BASELINE'}; "
            f"{settings.test_file} now has {now or 'none'}. Bring it back to that state, or start a new run"
        )
    return prepared


def diagnose(settings: Settings) -> tuple[int, list[Rung]]:
    """Run the ladder of run_benchmarks.commands.diagnose and print each rung; returns the exit code, and the rungs.

    Raises:
        InputProblems: no case is suitable.
    """
    os.umask(UMASK)
    prepared = prepare(settings, new_run_id())
    ladder_case(prepared)
    named = _named(prepared)
    rungs = list[Rung]()
    return (EXIT_USAGE if named is None else _diagnosed(*named, rungs)), rungs


def _diagnosed(prepared: PreparedRun, folder: Path, rungs: list[Rung]) -> int:
    start_logging("error", folder / "run.log")
    cleanup = own_command("clean", run_word(folder))
    try:
        with (
            controlling(folder) as lock,
            Interruption(cleanup, lock.note_stopping) as interruption,
            allocated(prepared, interruption) as reachable,
            connected(reachable.settings.cluster, reachable.allocation) as hosts,
        ):
            return _climb(Ladder(reachable, hosts, folder, interruption), rungs)
    except AllocationError as error:
        complain(str(error))
        return EXIT_CHECK
    except InterruptedRunError as error:
        complain(str(error))
        return EXIT_INTERRUPTED
    except OSError as error:
        complain(unwritable(error, folder, f"to remove what may be left on the hosts: {cleanup}"))
        return EXIT_FAIL
    finally:
        stop_logging()


def _climb(ladder: Ladder, rungs: list[Rung]) -> int:
    try:
        for rung in ladder.climb():
            rungs.append(rung)
            said = [
                f"{words('FAILED' if rung.problems else 'ok'):<6}  {words.reason(rung.name)}",
                *(f"        {words.reason(p)}" for p in rung.problems),
            ]
            say("\n".join(said))
            if rung.problems:
                return EXIT_FAIL
    finally:
        ladder.clean_up()
    return EXIT_PASS


def _submit(prepared: PreparedRun, folder: Path, learn: BaselineTarget | None) -> int:
    """Let the run's job run run.py, which goes on with the run as inside any allocation."""
    settings = prepared.settings
    files = ["--cluster-conf", str(settings.cluster_file.resolve()), "--test-conf", str(settings.test_file.resolve())]
    command = [
        sys.executable,
        str(ROOT / "run_benchmarks" / "run.py"),
        "resume",
        str(folder),
        *files,
        "--lang",
        words.language,
    ]
    session = Session(prepared, folder, Interruption(""), sys.argv, learn)
    session.note_start(pid=0)
    try:
        with answered(f"begin it by `{own_command('resume', run_word(folder))} --detach`"):
            submit_controller(prepared, command, folder / CONSOLE_FILE, session.note_job)
    except (AllocationError, SilentSlurmError) as error:
        complain(str(error))
        code = EXIT_USAGE if isinstance(error, SilentSlurmError) else EXIT_CHECK
        Journal(folder).append(RunEnded(verdict=Verdict.SKIPPED, exit_code=code))
        return code
    file = folder / CONSOLE_FILE
    print(
        words("{run} is begun by a job of Slurm, which prints to {file}. Show it, end it:", run=folder.name, file=file)
    )
    for word in ("status", "clean"):
        print(f"  {own_command(word, run_word(folder))}")
    return EXIT_PASS


def _control(
    prepared: PreparedRun,
    folder: Path,
    *,
    detach: bool,
    learn: BaselineTarget | None = None,
    kind: type[Session] = Session,
) -> int:
    if detach and prepared.settings.cluster.SLURM_DETACH and not is_inside():
        return _submit(prepared, folder, learn)
    if detach and not go_to_the_background(folder):
        print(words("{run} runs in the background. Follow it, show its state, end it:", run=folder.name))
        for word in ("attach", "status", "stop"):
            print(f"  {own_command(word, run_word(folder))}")
        return EXIT_PASS
    with outliving():
        CONSOLE.print(BANNER, markup=False)
    start_logging(prepared.settings.test.FLAGPERF_LOG_LEVEL, folder / "run.log")
    cleanup = own_command("clean", run_word(folder))
    try:
        with (
            controlling(folder) as lock,
            Interruption(cleanup, lock.note_stopping) as interruption,
            _reached(prepared, folder, interruption, learn) as reachable,
        ):
            session = kind(reachable, folder, interruption, sys.argv, learn)
            record = session.run()
        show_run(record, folder)
        _keep(folder, prepared.settings)
        if session.not_saved:
            complain(session.not_saved)
    except AllocationError as error:
        complain(str(error))
        return EXIT_CHECK
    except InterruptedRunError as error:  # while it waited for an allocation
        complain(str(error))
        return EXIT_INTERRUPTED
    except OSError as error:
        resume_command = own_command("resume", run_word(folder))
        complain(unwritable(error, folder, f"then go on: {resume_command}; or remove what is on the hosts: {cleanup}"))
        return EXIT_FAIL
    else:
        return session.exit_code(record)
    finally:
        stop_logging()


@contextmanager
def _reached(
    prepared: PreparedRun, folder: Path, interruption: Interruption, learn: BaselineTarget | None
) -> Iterator[PreparedRun]:
    """The run on its hosts, whose job is in the journal from its submission on; where each case gets its own, as it is.

    Raises:
        AllocationError, InterruptedRunError: see `allocated`; the journal tells of the end of a run that never began.
    """
    if not prepared.settings.cluster.needs_allocation or (prepared.has_jobs_of_cases and not is_inside()):
        yield prepared
        return
    waiting, journal = Session(prepared, folder, interruption, sys.argv, learn), Journal(folder)
    if not journal.path.exists():
        waiting.note_start()
    has_begun = False
    try:
        with allocated(prepared, interruption, noted_job(folder), waiting.note_job) as reachable:
            has_begun = True
            yield reachable
    except (AllocationError, InterruptedRunError) as error:
        if not has_begun and not journal.read().attempts:
            is_ended = isinstance(error, InterruptedRunError)
            verdict, code = (Verdict.ABORTED, EXIT_INTERRUPTED) if is_ended else (Verdict.SKIPPED, EXIT_CHECK)
            journal.append(RunEnded(verdict=verdict, exit_code=code))
        raise


def _keep(folder: Path, settings: Settings) -> None:
    """Put the run into the history; a problem with it is told and changes nothing."""
    url = url_of(settings.test.HISTORY, folder.parent)
    if url and (problem := record_run(folder, owner_of(folder.parent), url)):
        LOG.warning("%s", problem)


def unwritable(error: OSError, folder: Path, action: str) -> str:
    """A message that says why a folder of the head node cannot be written, and what to do."""
    why = f"{error.strerror or error} ({error.filename or folder})"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        why = f"{why}: the head node's own disk is full. Free some space there"
    return f"the results cannot be written to {folder}: {why}; {action}"


def show_run(record: RunRecord, result_dir: Path) -> None:
    """Print a run's tables, its cases, the hosts to take out of service, and where its results are."""
    show_outcomes(record, result_dir)
    cases = [(case, words.reason(verdict), *rest) for case, verdict, *rest in case_rows(record)]
    print_table("", ("case", "verdict", "rounds", "ranks", "metric", "value"), cases)
    if record.drain:
        rows = [(host, words.reason(why)) for host, why in drain_rows(record)]
        print_table("Take out of service:", ("host", "because"), rows)
    for reason in record.left_out.values():
        LOG.warning("Left out of this run: %s", reason)
    LOG.info("Run %s: %s. See all logs in %s", record.run_id, record.verdict, result_dir)
    LOG.info("Report: %s", result_dir / "report.html")
