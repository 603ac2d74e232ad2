"""The commands of run.py that run, watch, check, drain and clean: each imports what it does when it is called."""

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

from common.command_line import FORCE, FunctionVerb, VerbParser, new_path
from common.errors import MistakeList
from common.summary import Answer
from run_benchmarks.commands.options import (
    DEFAULT_TEST,
    Request,
    add_files,
    add_run_and_files,
    add_selection,
    asked_for,
    of_a_run,
)
from run_benchmarks.console.console import complain, say
from run_benchmarks.console.language import words
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_FAIL, EXIT_PASS, EXIT_USAGE

if TYPE_CHECKING:  # the start of a command does not need it
    from run_benchmarks.settings.settings import Settings

RUN_ID_SLOT = "run<timestamp>"


def _add_run(parser: VerbParser) -> None:
    add_selection(parser)
    parser.add_argument(
        "--save-baseline", type=new_path, metavar="F", help="save the measurements as a baseline if all cases pass"
    )
    parser.add_argument("--force", action="store_true", help=f"{FORCE}: that of --save-baseline")
    _add_detach(parser)


def _add_detach(parser: VerbParser) -> None:
    parser.add_argument("--detach", action="store_true", help="run in the background; see `status` and `attach`")


def _left(exit_code: int, folder: Path, *, has_record: bool = True) -> Answer | int:
    """The record of a run that a command worked on; where it wrote none, the run's name alone; if refused, nothing."""
    from run_benchmarks.results.loading import LoadError, record_of

    def data() -> object:
        if has_record and _version_of(folder):
            try:
                return record_of(folder)
            except LoadError as error:
                complain(str(error))
        return {"run_id": folder.name}

    return exit_code if exit_code == EXIT_USAGE else Answer(data, exit_code=exit_code)


def _version_of(folder: Path) -> tuple[int, int] | None:
    """The inode and modification time, in ns, of a run's record, new ones once it is written anew; None: no record."""
    from run_benchmarks.results.loading import RUN_FILE

    try:
        found = (folder / RUN_FILE).stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _run(arguments: argparse.Namespace) -> Answer | int:
    from run_benchmarks.commands import starting
    from run_benchmarks.state.journal import BaselineTarget

    file, learn = arguments.save_baseline, None
    if file is not None:
        learn = BaselineTarget(file=file.expanduser().absolute(), overwrite=arguments.force)
    mistakes = MistakeList()
    if file is None and arguments.force:
        mistakes.add("--force", None, "needs --save-baseline, whose file it overwrites")
    with mistakes.noted():
        starting.refuse_target(learn)
    with mistakes.noted():
        settings = asked_for(arguments).settings()
    mistakes.check()
    code, folder = starting.start(settings, detach=arguments.detach, learn=learn)
    return _left(code, folder, has_record=not arguments.detach) if folder is not None else code


def _add_resume(parser: VerbParser) -> None:
    add_run_and_files(parser)
    _add_detach(parser)


def _resume(arguments: argparse.Namespace, folder: Path) -> Answer | int:
    from run_benchmarks.commands import starting
    from run_benchmarks.commands.run_reference import settings_of

    settings = settings_of(folder, arguments.cluster_conf, arguments.test_conf)
    before = _version_of(folder)
    code = starting.resume(settings, folder, detach=arguments.detach)
    return _left(code, folder, has_record=not arguments.detach and _version_of(folder) != before)


def _collect(arguments: argparse.Namespace, folder: Path) -> Answer | int:
    from run_benchmarks.commands import starting
    from run_benchmarks.commands.run_reference import settings_of

    settings = settings_of(folder, arguments.cluster_conf, arguments.test_conf)
    return _left(starting.collect(settings, folder), folder)


def _add_status(parser: VerbParser) -> None:
    parser.add_argument("run_id", metavar="RUN", nargs="?", help="one run; default: all")
    add_files(parser)


def _status(arguments: argparse.Namespace) -> Answer:
    from run_benchmarks.commands import status
    from run_benchmarks.commands.run_reference import find_run

    if arguments.run_id is not None:
        folders = [find_run(arguments.run_id, arguments.test_conf, DEFAULT_TEST)]
    else:
        from run_benchmarks.session.run_folder import result_root

        folders = sorted(result_root(asked_for(arguments).settings()).glob("run*"))
    return Answer(lambda: {"runs": status.states(folders)}, lambda: status.show(folders))


def _attach(arguments: argparse.Namespace, folder: Path) -> Answer:
    from run_benchmarks.commands import attaching, status
    from run_benchmarks.commands.run_reference import typical_seconds

    code = attaching.follow(folder, sys.stdout, lambda cases: typical_seconds(folder, arguments.test_conf, cases))
    return Answer(lambda: status.state_of(folder), exit_code=code)


def _add_stop(parser: VerbParser) -> None:
    add_run_and_files(parser)
    parser.add_argument(
        "--now", action="store_true", help="immediately, without stopping tasks on the hosts; `clean` removes them"
    )


def _stop(arguments: argparse.Namespace, folder: Path) -> Answer:
    from run_benchmarks.commands import stopping

    code = stopping.stop(folder, sys.stdout, at_once=arguments.now)
    return Answer(lambda: {"run_id": folder.name, "ended": code == EXIT_PASS}, exit_code=code)


def _add_plan(parser: VerbParser) -> None:
    add_selection(parser)
    parser.add_argument("--settings", action="store_true", help="each case's settings and where each is set")
    parser.add_argument("--slurm", action="store_true", help="the batch script and the steps that Slurm receives")
    parser.add_argument("--kubernetes", action="store_true", help="JobSets; not tried on a cluster")


def _plan(arguments: argparse.Namespace) -> Answer:
    import json

    from run_benchmarks.commands.plan_manifests import job_sets, slurm_script
    from run_benchmarks.commands.plan_view import masked, settings_of_cases, show_settings
    from run_benchmarks.session.preparation import prepare

    mistakes = MistakeList()
    asked = [f"--{name}" for name in ("settings", "slurm", "kubernetes") if getattr(arguments, name)]
    for flag in asked[1:]:
        mistakes.add(flag, None, f"is another view than {asked[0]}: expected one of them")
    with mistakes.noted():
        prepared = prepare(asked_for(arguments).settings(), RUN_ID_SLOT)
    mistakes.check()
    for warning in prepared.resolved.warnings:
        complain(f"warning: {warning}")
    if arguments.slurm:
        return Answer(lambda: {"script": slurm_script(prepared)}, lambda: print(slurm_script(prepared), end=""))
    shown = job_sets(prepared) if arguments.kubernetes else masked(prepared.plan)
    if arguments.settings:
        cases = settings_of_cases(shown)
        return Answer(lambda: {"cases": cases}, lambda: show_settings(cases))
    return Answer(lambda: shown, lambda: print(json.dumps(shown, indent=2, ensure_ascii=False)))


def _check(arguments: argparse.Namespace) -> Answer:
    from run_benchmarks.commands.check_view import as_data, show_reports
    from run_benchmarks.inspection.check import check_hosts
    from run_benchmarks.inspection.health import examine_health
    from run_benchmarks.session.allocation import allocated, with_short_job
    from run_benchmarks.session.preparation import connected, prepare
    from run_benchmarks.session.run_folder import new_run_id

    planned = prepare(with_short_job(asked_for(arguments).settings()), new_run_id())
    with allocated(planned) as prepared, connected(prepared.settings.cluster, prepared.allocation) as reached:
        reports = check_hosts(reached, prepared.settings, prepared.plan, prepared.resolved.vendor, prepared.runtime())
        examine_health(reached, reports, prepared.plan)
    failed = any(finding.severity == "failure" for report in reports.values() for finding in report.findings)
    return Answer(lambda: as_data(reports), lambda: show_reports(reports), EXIT_CHECK if failed else EXIT_PASS)


def _add_trust(parser: VerbParser) -> None:
    parser.add_argument("--yes", action="store_true", help="record without asking")
    add_files(parser)


def _trust(arguments: argparse.Namespace) -> Answer:
    from run_benchmarks.commands.trusting import trust_hosts

    found = trust_hosts(asked_for(arguments).settings().cluster, lambda question: arguments.yes or _confirmed(question))
    return Answer(lambda: {"hosts": found}, exit_code=EXIT_PASS if all(found.values()) else EXIT_CHECK)


def _confirmed(question: str) -> bool:
    try:
        return input(f"{question} [y/N]: ").strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _diagnose(arguments: argparse.Namespace) -> Answer | int:
    from run_benchmarks.commands import starting

    code, rungs = starting.diagnose(asked_for(arguments).settings())
    return code if code == EXIT_USAGE else Answer(lambda: {"rungs": rungs}, exit_code=code)


def _add_accept(parser: VerbParser) -> None:
    add_selection(parser)
    add = parser.add_argument
    add("--rungs", metavar="A,B", default="health,single,network,whole", help="of health, single, network, whole")
    add("--budget", metavar="TIME", default="1h", help="for all rungs together, such as 90s, 30m or 2h")
    add("--nproc", metavar="N", type=int, help="processes, and devices, of a host (default: as many as most have)")
    add("--against", metavar="F", type=Path, help="accept.json of an acceptance, whose figures these have to match")
    add("--save-expected", metavar="F", type=new_path, help="keep what accepted hosts measured, for --against")
    add("--force", action="store_true", help=f"{FORCE}: that of --save-expected")
    add("--detach", action="store_true", help=argparse.SUPPRESS)


def _accept(arguments: argparse.Namespace) -> Answer | int:
    from run_benchmarks.commands import accepting
    from run_benchmarks.commands.accept_options import AcceptOptions

    given = {field.name: getattr(arguments, field.name) for field in fields(AcceptOptions)}
    code, record = accepting.accept(asked_for(arguments), AcceptOptions(**given))
    return Answer(lambda: record, exit_code=code) if record is not None else code


def _to_clean(asked: Request, run_id: str) -> "tuple[Path, Settings]":
    """The folder of a run that is to be cleaned, and its settings."""
    from run_benchmarks.commands.run_reference import existing_run, find_run, settings_of
    from run_benchmarks.session.run_folder import RUN_ID, result_root
    from run_benchmarks.state.journal import recorded_hosts

    folder = existing_run(run_id, asked.test_conf, DEFAULT_TEST)
    if folder is None and not RUN_ID.fullmatch(Path(run_id).name):
        find_run(run_id, asked.test_conf, DEFAULT_TEST)
    if folder is None or recorded_hosts(folder) is None:  # a run of another head node, or one that has no journal yet
        settings = asked.settings()
        return folder or result_root(settings) / run_id, settings
    return folder, settings_of(folder, asked.cluster_conf, asked.test_conf)


def _clean(arguments: argparse.Namespace) -> Answer:
    from run_benchmarks.commands import cleaning
    from run_benchmarks.hosts.slurm.absence import answered
    from run_benchmarks.hosts.slurm.node_names import expanded
    from run_benchmarks.session.allocation import allocated, leave_queue
    from run_benchmarks.session.preparation import connected, prepare
    from run_benchmarks.session.run_folder import OWNER_FILE, owner_of
    from run_benchmarks.settings.host_selection import selected
    from run_benchmarks.state.journal import noted_job, recorded_hosts

    folder, settings = _to_clean(asked_for(arguments), arguments.run_id)
    owner = owner_of(folder.parent) if (folder.parent / OWNER_FILE).is_file() else ""
    planned = prepare(selected(settings, recorded_hosts(folder)), folder.name).named(folder.name, owner)
    cleaning.check_run(folder, planned.plan)
    if (known := noted_job(folder)) is not None and known.case:
        planned = planned.part(known.case, expanded(known.hosts) if known.hosts else ())
    with answered():
        jobs = leave_queue(planned)
    if jobs:
        say(words("Slurm's job {job}, which waited for nodes, is cancelled", job=", ".join(jobs)))
        if not cleaning.may_have_begun(folder):
            return Answer(lambda: {"cancelled": jobs, "removed": {}, "failed": {}})
    with (
        answered(),
        allocated(planned, known=known) as prepared,
        connected(prepared.settings.cluster, prepared.allocation) as hosts,
    ):
        result = cleaning.clean(hosts, prepared.plan, prepared.runtime())
    for host, removed in result.succeeded.items():
        say(words("{host}: removed {what}", host=host, what=", ".join(removed) or words("nothing")))
    failed = {host: str(error) for host, error in result.failed.items()}
    for error in failed.values():
        complain(error)
    data = {"cancelled": jobs, "removed": result.succeeded, "failed": failed}
    return Answer(lambda: data, exit_code=EXIT_FAIL if failed else EXIT_PASS)


def _add_drain(parser: VerbParser) -> None:
    add_run_and_files(parser)
    parser.add_argument("--apply", action="store_true", help="do it in Slurm, as an operator")


def _drain(arguments: argparse.Namespace, folder: Path) -> Answer:
    from run_benchmarks.commands import draining

    return draining.drain(folder, apply=arguments.apply)


def _undrain(_: argparse.Namespace, folder: Path) -> Answer:
    from run_benchmarks.commands import draining

    return draining.undrain(folder)


def _add_verify(parser: VerbParser) -> None:
    add_run_and_files(parser)
    parser.add_argument(
        "--signers", type=Path, metavar="FILE", help="ssh-keygen's allowed signers, one of whom signed it"
    )


def _verify(arguments: argparse.Namespace) -> Answer:
    from run_benchmarks.commands import verification
    from run_benchmarks.commands.run_reference import find_run

    mistakes, folder = MistakeList(), Path(arguments.run_id)
    if arguments.signers is not None and not arguments.signers.is_file():
        mistakes.add("verify: --signers", arguments.signers, "expected a file that exists")
    if not folder.is_dir():
        with mistakes.noted():
            folder = find_run(arguments.run_id, arguments.test_conf, DEFAULT_TEST)
    mistakes.check()
    found = verification.verified(folder, arguments.signers)
    return Answer(
        lambda: {"run_id": folder.name, "is_intact": not found.problems, **vars(found)},
        lambda: verification.show(folder, found),
        EXIT_FAIL if found.problems else EXIT_PASS,
    )


RUN = FunctionVerb(_add_run, _run)
ACCEPT = FunctionVerb(_add_accept, _accept)
RESUME = of_a_run(_resume, _add_resume)
COLLECT = of_a_run(_collect)
STATUS = FunctionVerb(_add_status, _status)
ATTACH = of_a_run(_attach)
STOP = of_a_run(_stop, _add_stop)
PLAN = FunctionVerb(_add_plan, _plan)
CHECK = FunctionVerb(add_selection, _check)
TRUST = FunctionVerb(_add_trust, _trust)
DIAGNOSE = FunctionVerb(add_selection, _diagnose)
DRAIN = of_a_run(_drain, _add_drain)
UNDRAIN = of_a_run(_undrain)
CLEAN = FunctionVerb(add_run_and_files, _clean)
VERIFY = FunctionVerb(_add_verify, _verify)
