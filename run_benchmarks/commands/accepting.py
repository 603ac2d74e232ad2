"""Accepts a cluster: `run.py accept` climbs the rungs, and says which hosts to take out, with proof."""

import math
import signal
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import vendors
from common.shortening import few
from common.summary import counted
from run_benchmarks.acceptance.climb import GOOD_BESIDE, Climb, EndedError, Looked, NoNodesError
from run_benchmarks.acceptance.devices import untested_devices, usual_devices
from run_benchmarks.acceptance.estimate import earlier_ones, estimates, in_words
from run_benchmarks.acceptance.kinds import alike_first
from run_benchmarks.acceptance.page import (
    PAGE_FILE,
    PAIR,
    SHOWN,
    accepted_of,
    left_out_of,
    state_of,
    states_of_accepted,
    times,
    untried_vendor,
    warned_rows,
    write_page,
)
from run_benchmarks.acceptance.records import ACCEPT_FILE, AcceptRecord
from run_benchmarks.acceptance.rungs import (
    FEWEST,
    HEALTH,
    NETWORK,
    NO_OTHERS,
    RUNGS,
    SINGLE,
    TOOLS_CONFIG,
    Cases,
    DataPath,
    Others,
    conf_text,
    stages_of,
    with_rails,
)
from run_benchmarks.acceptance.tools import installed, others_of, too_long, tools_of
from run_benchmarks.commands import draining, starting
from run_benchmarks.commands.accept_options import AcceptOptions, checked, refuse_unlike, refuse_vendor
from run_benchmarks.commands.check_view import not_seen
from run_benchmarks.commands.options import DEFAULT_CLUSTER, DEFAULT_TEST, Request
from run_benchmarks.console.command_line import own_command, run_word
from run_benchmarks.console.console import complain, say
from run_benchmarks.console.language import words
from run_benchmarks.console.terminal import print_table
from run_benchmarks.errors import ClusterDynoError, InputProblems
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.hosts.slurm.absence import answered
from run_benchmarks.hosts.slurm.allocation import AllocationError
from run_benchmarks.hosts.slurm.nodes import MARK
from run_benchmarks.inspection.check import check_hosts
from run_benchmarks.inspection.findings import HostReport
from run_benchmarks.inspection.health import examine_health
from run_benchmarks.results.loading import LoadedRun, LoadError, load_run
from run_benchmarks.results.records import DrainRecord, record_text, write_text
from run_benchmarks.session.allocation import allocated, lost_in, out_of_service
from run_benchmarks.session.preparation import PreparedRun, checked_settings, connected, prepare
from run_benchmarks.session.run_folder import new_run_id, result_root
from run_benchmarks.settings.host_access import way_in
from run_benchmarks.settings.host_selection import HostSelection
from run_benchmarks.settings.settings import Settings
from run_benchmarks.state.exit_codes import EXIT_CHECK, EXIT_FAIL, EXIT_INTERRUPTED, EXIT_PASS, EXIT_USAGE
from run_benchmarks.state.interruption import patience
from training.benchmarks.tools.pytorch.config import Config

SHOWN_WARNINGS = 12
WITHOUT_DEVICES = 2  # ranks of a host
INSPECTOR_FOLDER = "NCCL_INSPECTOR_DUMP_DIR"
"""Variable of NCCL's profiler plugin Inspector (ext-profiler/inspector, README): where it writes."""


class Acceptance:
    """One acceptance: its folder, and the way in which its rungs run."""

    def __init__(self, asked: Request, settings: Settings, folder: Path, nproc: int) -> None:
        self._vendor, self._in_containers = settings.test.VENDOR, settings.test.in_containers
        self.folder, self._nproc = folder, nproc
        self._data = [on_host for on_host, _ in data_paths(settings)]
        self._cluster, self._changes = asked.cluster_conf or DEFAULT_CLUSTER, asked.changes
        self._own = (asked.test_conf or DEFAULT_TEST).read_text(encoding="utf-8")
        self.interrupted, self.is_unwritten = False, False

    def climb(
        self, climb: Climb, names: Sequence[str], earlier: Sequence[AcceptRecord], kept: Callable[[], object]
    ) -> None:
        """Do the rungs, and after each what keeps the record; what ends them early is told."""
        try:
            with _ended_by_signals():
                climb.tools = self.tools(names, climb.hosts, climb.budget_s)
                climb.expected = estimates(names, climb.vendor, len(climb.hosts), self._nproc, earlier, climb.tools)
                say(in_words(climb.expected, len(climb.hosts), climb.budget_s))
                for name in names:
                    climb.step(name)
                    kept()
        except EndedError as error:
            complain(words("ended early: {why}", why=error))
        except KeyboardInterrupt:
            self.interrupted = True
            complain(words("ended early: {why}", why=words("interrupted")))
        except (ClusterDynoError, InputProblems) as error:
            complain(str(error))
        except OSError as error:
            complain(starting.unwritable(error, self.folder, "what was measured follows"))

    def keep(self, record: AcceptRecord) -> None:
        """Write accept.json and accept.html; a full disk is told, and ends nothing that is measured."""
        try:
            write_text(self.folder / ACCEPT_FILE, record_text(record))
            write_page(self.folder / PAGE_FILE, record, words)
            self.is_unwritten = False
        except OSError as error:
            self.is_unwritten = True
            complain(starting.unwritable(error, self.folder, "what was measured follows"))

    def run(self, name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> LoadedRun:
        """Run cases on hosts; their records.

        Raises:
            NoNodesError: Slurm gave no nodes.
            EndedError: it was interrupted, did not begin, or left no record.
        """
        said = words(
            "-- {rung}: {cases} on {n} host --" if len(hosts) == 1 else "-- {rung}: {cases} on {n} hosts --",
            rung=name,
            cases=", ".join(cases),
            n=len(hosts),
        )
        say(said)
        settings = self.conf(name, cases, hosts, seconds)
        code, folder = starting.start(settings)
        if code == EXIT_INTERRUPTED:
            self.interrupted = True
            raise EndedError(
                f"{folder.name if folder else name} was interrupted: what it measured is there, not judged"
            )
        if folder is None:
            raise EndedError(f"{name}: its run could not be made")
        try:
            return load_run(folder)
        except LoadError as error:
            if code == EXIT_CHECK:  # of hosts that fail the check there is a record
                raise NoNodesError(f"{folder.name} got no nodes of Slurm: {error}") from error
            raise EndedError(f"{folder.name} could not be made: {error}") from error

    def examine(self, hosts: Sequence[str]) -> Looked:
        """The objections of the check to each host, and what could not be looked at."""
        say(words("-- health: {n} host --" if len(hosts) == 1 else "-- health: {n} hosts --", n=len(hosts)))
        return self._looked(hosts, is_before=True)

    def gate(self, hosts: Sequence[str]) -> Looked:
        """The same of the health alone, after a run: load and time of day do not count then."""
        return self._looked(hosts, is_before=False)

    def _looked(self, hosts: Sequence[str], *, is_before: bool) -> Looked:
        with self.reached(hosts) as (prepared, reached, gone):
            plan, vendor = prepared.plan, prepared.resolved.vendor
            waiting = patience(prepared.settings.cluster.LINK_LIMIT)
            if is_before:
                reports = check_hosts(reached, prepared.settings, plan, vendor, prepared.runtime(), waiting)
            else:
                reports = {name: HostReport(host=name) for name in reached}
                for name, error in for_each(reached, lambda host: host.connect()).failed.items():
                    way, said = way_in(name, prepared.settings.cluster), str(error).removeprefix(f"{name}: ")
                    reports[name].add(way.subject, said, way.expected, f"look at its power and console: {way.command}")
            examine_health(reached, reports, plan, self._data, waiting)
            if lost := lost_in(prepared.allocation):  # no host failed
                raise AllocationError(lost)
        sick = {host: [f"Slurm: {state}: {_to_do(host, state)}"] for host, state in gone.items()}
        return Looked(
            sick=sick | {host: report.objections for host, report in reports.items() if report.failed},
            unseen=[*untested_devices(reports, self._nproc), *not_seen(reports)],
            unasked={host: report.blind_to for host, report in reports.items()},
            missed={host: report.missed for host, report in reports.items()},
            warnings={host: report.warnings for host, report in reports.items()},
        )

    def tools(
        self, rungs: Sequence[str], hosts: Sequence[str], budget_s: float = math.inf, *, is_planned: bool = False
    ) -> dict[str, Others]:
        """By rung the tools of others that the vendor's configs name and that hosts have; where it is only planned, or
        an image has them, all that are named. What health has is in no later rung, and what takes too long for it is.
        """
        configs = self._tool_configs(rungs, hosts)
        names = list(dict.fromkeys(name for config in configs.values() for name in config.tools))
        is_asked = bool(names) and not is_planned and not self._in_containers
        there, silent = self._asked(names, hosts) if is_asked else (None, [])
        found: dict[str, Others] = {}
        elsewhere: dict[str, str] = {}
        for rung, config in configs.items():
            if rung == HEALTH:
                elsewhere = too_long(config, self._nproc, budget_s)
            others = Others() if is_asked and there is None else others_of(config, self._nproc, there, elsewhere)
            if rung == HEALTH:
                elsewhere = dict.fromkeys(others.commands, "")
            inspector = self._inspector(hosts) if rung == NETWORK else None
            if self._in_containers and not is_planned:  # an image may lack them: they shrink no rung until measured
                others = replace(others, seconds=0.0)
            found[rung] = replace(others, missing=[*silent, *others.missing], inspector=inspector)
            silent = []
        return found

    def _tool_configs(self, rungs: Sequence[str], hosts: Sequence[str]) -> dict[str, Config]:
        """By rung the vendor's config of tools, where it has one and there are hosts enough."""
        configs: dict[str, Config] = {}
        for rung in rungs:
            config = tools_of(self._vendor, TOOLS_CONFIG[rung]) if rung in TOOLS_CONFIG else None
            if config is not None and len(hosts) >= FEWEST[rung]:
                configs[rung] = config
        return configs

    def _asked(self, names: Sequence[str], hosts: Sequence[str]) -> tuple[set[str] | None, list[str]]:
        with self.reached(hosts) as (_, reached, _):
            return installed(reached, names)

    def _inspector(self, hosts: Sequence[str]) -> str | None:
        """The folder where NCCL Inspector writes of the collectives of all hosts, by the environment of the ranks."""
        cases = stages_of(NETWORK, self._vendor, hosts, self._nproc)[1]
        planned = prepare(self.conf(NETWORK, cases, hosts, 1), new_run_id()).plan
        return planned.cases[0].rounds[0].nodes[0].workload.environment.get(INSPECTOR_FOLDER)

    def look(self, hosts: Sequence[str]) -> PreparedRun:
        """A run by which hosts are reached and looked at, of device tests: the user's own cases may need more hosts."""
        cases = stages_of(SINGLE, self._vendor, hosts, self._nproc)[0]
        return prepare(self.conf(HEALTH, cases, hosts, 1), new_run_id())

    @contextmanager
    def reached(self, hosts: Sequence[str]) -> Iterator[tuple[PreparedRun, dict[str, Host], dict[str, str]]]:
        """The run by which hosts are reached, they, and those that Slurm gives to no job, unless all are so; asked
        again where it gives no nodes, for SLURM_QUEUE_LIMIT altogether.
        """
        planned = self.look(hosts)
        until = time.monotonic() + planned.settings.cluster.SLURM_QUEUE_LIMIT
        gone = out_of_service(planned.settings, hosts)
        with ExitStack() as stack:
            while True:
                try:
                    rest = self._without(planned, hosts, gone)
                    left = max(0.0, until - time.monotonic())
                    prepared = stack.enter_context(allocated(rest, queue_seconds=left))
                    break
                except AllocationError:
                    if not (since := out_of_service(planned.settings, hosts)).keys() - gone:
                        raise
                    gone |= since
            cluster = prepared.settings.cluster
            yield prepared, stack.enter_context(connected(cluster, prepared.allocation)), gone

    def _without(self, planned: PreparedRun, hosts: Sequence[str], gone: Container[str]) -> PreparedRun:
        """The run by which those of the hosts are reached that are not gone, of all where none is left."""
        rest = [host for host in hosts if host not in gone]
        return self.look(rest) if rest and len(rest) < len(hosts) else planned

    def conf(self, name: str, cases: Cases, hosts: Sequence[str], seconds: int) -> Settings:
        """The settings of a rung's run on these hosts, whose test_conf.py stays in the acceptance's folder."""
        path = self.folder / f"{name}_conf.py"
        path.write_text(conf_text(self._own, cases, seconds), encoding="utf-8")
        return checked_settings(self._cluster, path, self._changes, HostSelection(hosts=",".join(hosts)))


def _to_do(host: str, state: str) -> str:
    """The action for a node that Slurm gives to no job; one that run.py drained is resumed before it is tested."""
    if f"({MARK} " in state:
        return f"run.py drained it, after its repair {_resume(host)}, then test it again"
    return "look why with sinfo -R"


def _resume(host: str) -> str:
    return f"scontrol update nodename={host} state=resume"


def accept(asked: Request, options: AcceptOptions) -> tuple[int, AcceptRecord | None]:
    """Climb the rungs, print the page's essentials, write accept.json and accept.html; returns the exit code and the
    record, None if no folder can be made.

    Raises:
        InputProblems: the settings are wrong; nothing was run then.
    """
    asked = asked._replace(changes=asked.changes.model_copy(update={"brings_cases": True}))
    names, seconds, settings, earlier = checked(asked, options)
    nproc, against, save_expected = options.nproc, options.against, options.save_expected
    root = result_root(settings)
    try:
        nproc = _planned(asked, settings, names, nproc, (earlier, against) if earlier and against else None)
        folder = _new_folder(root)
    except OSError as error:
        complain(starting.unwritable(error, root, "FLAGPERF_LOG_PATH_HOST in test_conf.py names another folder"))
        return EXIT_USAGE, None
    acceptance = Acceptance(asked, settings, folder, nproc)
    climb = _climb(acceptance, settings, nproc, names, seconds, earlier)
    began = time.time()

    def kept() -> AcceptRecord:
        is_slurm = settings.cluster.needs_allocation
        record = _record(climb, folder, same_options(asked, names), began, against, is_slurm=is_slurm)
        acceptance.keep(record)
        return record

    acceptance.climb(climb, names, earlier_ones(root), kept)
    climb.leave(names[len(climb.rungs) :], "the acceptance ended before it")
    record = kept()
    show(record, folder)
    if save_expected is not None:
        save(record, save_expected, climb.doubts)
    if acceptance.interrupted:
        return EXIT_INTERRUPTED, record
    return EXIT_PASS if record.ready and not acceptance.is_unwritten else EXIT_FAIL, record


def _climb(
    acceptance: Acceptance,
    settings: Settings,
    nproc: int,
    names: list[str],
    seconds: float,
    earlier: AcceptRecord | None,
) -> Climb:
    """The rungs to climb within so many seconds, with `nproc` ranks a host."""
    return Climb(
        vendor=settings.test.VENDOR,
        nproc=nproc,
        hosts=list(settings.cluster.HOSTS),
        budget_s=seconds,
        run=acceptance.run,
        examine=acceptance.examine,
        gate=acceptance.gate,
        data=data_paths(settings),
        planned=names,
        usual=earlier.usual if earlier else {},
        usual_cases=earlier.cases if earlier else None,
    )


def _planned(
    asked: Request,
    settings: Settings,
    names: Sequence[str],
    nproc: int | None,
    earlier: tuple[AcceptRecord, Path] | None,
) -> int:
    """Plan all rungs; returns the number of ranks of a host, which without `nproc` the hosts tell.

    Raises:
        InputProblems: a rung's settings are wrong, or `earlier`, a record and its file, has another number of devices.
        SilentSlurmError: Slurm does not answer.
        OSError: the results' folder cannot be written.
    """
    if nproc is None:
        with _ended_by_signals(), answered():
            nproc = ranks_of_a_host(asked, settings)
    if earlier is not None:
        refuse_unlike(*earlier, settings.test.VENDOR, nproc)
    plan_all(asked, settings, names, nproc)
    return nproc


def _new_folder(root: Path) -> Path:
    """The folder of an acceptance; a second one of the same second gets the next.

    Raises:
        OSError: it cannot be made.
    """
    root.mkdir(parents=True, exist_ok=True)
    while True:
        folder = root / f"accept{time.strftime('%Y%m%d%H%M%S')}"
        try:
            folder.mkdir()
        except FileExistsError:
            time.sleep(0.1)
        else:
            return folder


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end an acceptance as Ctrl-C does, also between its runs; nohup's SIGHUP stays ignored."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    ending = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    previous = {number: signal.signal(number, end) for number in ending}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def data_paths(settings: Settings) -> list[DataPath]:
    """The folders of data that the user's own cases have, on the hosts and in a container, each once."""
    cases = settings.cases.values()
    return sorted(
        {
            (case.data_dir_host, case.data_dir_container)
            for case in cases
            if case.data_dir_host is not None and case.data_dir_container is not None
        }
    )


def save(record: AcceptRecord, path: Path, doubts: Sequence[str] = ()) -> None:
    """Write the record where --against finds its figures; nothing without any, or with doubts in what all measured."""
    good = sum(state == "accepted" for state in record.hosts.values())
    if doubts:
        said = words.reason(doubts[0])
        complain(words("{path} is not written: {rung} says: {why}", path=path, rung=SINGLE, why=said))
        return
    if not record.usual or not good:
        complain(f"{path} is not written: no host was accepted and measured")
        return
    try:
        write_text(path, record_text(record))
    except OSError as error:
        complain(f"{path} is not written: {error.strerror or error}")
        return
    tests = {PAIR.sub("", test) for levels in record.usual.values() for test in levels}
    of, from_hosts = counted(len(tests), "test"), counted(good, "host")
    say(f"{path}: what is expected in {of}, learned from {from_hosts}; for --against")


def ranks_of_a_host(asked: Request, settings: Settings) -> int:
    """As many as the hosts have devices; where none has or tells, WITHOUT_DEVICES, which is said.

    Raises:
        InputProblems: the device tests cannot be planned.
        OSError: the disk of temporary files is full.
    """
    patterns, hosts = vendors.load(settings.test.VENDOR).device_files, list(settings.cluster.HOSTS)
    if not patterns:
        return WITHOUT_DEVICES
    with tempfile.TemporaryDirectory() as folder:
        planned = Acceptance(asked, settings, Path(folder), 1)
        with planned.reached(hosts) as (_, reached, _):
            usual = usual_devices(reached, patterns)
    if usual is None:
        say(words("no host has or tells devices: {n} ranks of each; --nproc sets another number", n=WITHOUT_DEVICES))
    return usual or WITHOUT_DEVICES


def plan_all(asked: Request, settings: Settings, names: Sequence[str], nproc: int) -> None:
    """Plan the cases of all rungs on all hosts, so that none is refused after hours.

    Raises:
        InputProblems: the vendor's ranks use no device, it lacks a config, or --nproc suits none.
        OSError: the disk of temporary files is full.
    """
    refuse_vendor(settings)
    hosts, data = list(settings.cluster.HOSTS), data_paths(settings)
    with tempfile.TemporaryDirectory() as folder:
        planned = Acceptance(asked, settings, Path(folder), nproc)
        planned.look(hosts)
        tools = planned.tools(names, hosts, is_planned=True)
        for name in names:
            if len(hosts) < FEWEST[name]:
                continue
            for cases in stages_of(name, settings.test.VENDOR, hosts, nproc, data, tools.get(name, NO_OTHERS)):
                every = with_rails(cases, settings.test.VENDOR, hosts, {hosts[0]: []})
                prepare(planned.conf(name, every, hosts, 1), new_run_id())


def same_options(asked: Request, names: Sequence[str]) -> list[str]:
    """The options by which another acceptance has the files, settings and rungs of this one."""
    files = (("--cluster-conf", asked.cluster_conf), ("--test-conf", asked.test_conf))
    options = [word for name, path in files if path is not None for word in (name, str(path.resolve()))]
    options += [word for each in asked.changes.sets for word in ("--set", each)]
    return options if list(names) == list(RUNGS) else [*options, "--rungs", ",".join(names)]


def _record(
    climb: Climb, folder: Path, options: Sequence[str], began: float, against: Path | None, *, is_slurm: bool = False
) -> AcceptRecord:
    drain = {host: said for rung in climb.rungs for host, said in rung.out.items()}
    states = climb.states()
    steady = (host for host in climb.left if states[host] != "comes and goes")
    good = sorted(steady, key=lambda host: states[host] != "accepted")
    vendor = vendors.load(climb.vendor)
    listed = [DrainRecord(host=host, reasons=said) for host, said in drain.items()]
    levels = folder / ACCEPT_FILE if climb.measured or climb.measured_cases else against
    if levels:
        options = [*options, "--against", str(levels.resolve())]

    def again(host: str) -> str:
        beside = ",".join([host, *alike_first(good, [host], climb.kinds, GOOD_BESIDE)])
        command = own_command("accept", "--hosts", beside, "--nproc", str(climb.nproc), *options)
        return f"{_resume(host)}; {command}" if is_slurm else command  # a drained node is given to no job

    return AcceptRecord(
        accept_id=folder.name,
        ready=climb.ready,
        vendor=climb.vendor,
        vendor_seen=vendor.seen if vendor.monitor_name else None,
        started_ms=int(began * 1000),
        finished_ms=int(time.time() * 1000),
        rungs=climb.rungs,
        hosts=states,
        missed=climb.missed,
        drain=drain,
        commands=list(draining.commands(listed, folder.name)),
        again={host: again(host) for host in drain},
        bundles=[own_command("bundle", run_word(folder.parent / run), case) for run, case in climb.proofs],
        nproc=climb.nproc,
        usual=climb.measured,
        cases=climb.measured_cases,
        against=str(against or ""),
        warnings=climb.warned.records(),
        warnings_left_out=climb.warned.left_out,
    )


def show(record: AcceptRecord, folder: Path) -> None:
    """Print what to take out, the rungs, and the verdict."""
    if record.drain:
        rows = [(host, "\n".join(said)) for host, said in record.drain.items()]
        print_table("Take out of service:", ("host", "because"), rows)
    unsteady = [(host, "\n".join(said)) for rung in record.rungs for host, said in rung.unsteady.items()]
    if unsteady:
        print_table("Suspected, not confirmed:", ("host", "what was seen"), unsteady)
    if record.warnings:
        kinds = warned_rows(record, words)[:SHOWN_WARNINGS]
        title = words("Warnings, which take nobody out")
        print_table(title, ("hosts", "host", "what was seen"), kinds)
        if more := len(record.warnings) - len(kinds) + record.warnings_left_out:
            say(words("and {n} more", n=more))
    table = [
        (
            rung.rung,
            words(rung.verdict),
            str(len(rung.hosts)),
            ", ".join(rung.out),
            *times(rung),
            "\n".join(rung.reasons),
        )
        for rung in record.rungs
    ]
    print_table("", ("rung", "verdict", "hosts", "out", "time", "estimated", "why"), table)
    for rung in record.rungs:
        if rung.shrunk:
            what = ", ".join(rung.shrunk)
            say(f"{rung.rung}: {words('shrunk to fit the budget: {what}', what=what)}")
        for said in rung.not_run:
            say(f"{rung.rung}: {left_out_of(said, words)}")
    if untried := untried_vendor(record, words):
        say(untried)
    say(f"{record.accept_id}: {state_of(record, words).upper()}: {accepted_of(record, words)}")
    for said, hosts in states_of_accepted(record, words).items():
        say(f"{few(hosts, SHOWN)}: {said}")
    for host, command in record.again.items():
        say(words("After the repair of {host}: {command}", host=host, command=command))
    say(words("See {page} and {record} beside it", page=folder / PAGE_FILE, record=ACCEPT_FILE))
