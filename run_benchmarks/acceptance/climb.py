"""Climbs the rungs: each runs on the hosts that are left, names suspects, and confirms them on another occasion."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from common.shortening import few
from protocol.finding import PartFinding
from run_benchmarks.acceptance.case_levels import Known, levels_of, not_compared, slow_hosts, slow_together
from run_benchmarks.acceptance.estimate import Estimate
from run_benchmarks.acceptance.kinds import alike_first, kinds_of
from run_benchmarks.acceptance.links import idle_ports
from run_benchmarks.acceptance.records import CaseLevels, HostState, Levels, RungRecord, Usual
from run_benchmarks.acceptance.rungs import (
    EVERY_LINK,
    FEWEST,
    HEALTH,
    LEAST_OF_PAIRS,
    NETWORK,
    NO_OTHERS,
    RAILS,
    SINGLE,
    TOOLS,
    WHOLE,
    Cases,
    DataPath,
    Others,
    choice_of,
    left_out,
    shortened,
    soak_of,
    soak_times,
    stages_of,
    with_rails,
)
from run_benchmarks.acceptance.suspects import (
    Suspects,
    against_datasheet,
    agreed,
    beside_datasheet,
    in_vain,
    not_against,
    not_run_in,
    proven,
    suspects_of,
    unattributed,
    unjudged,
    unlike,
    usual_of,
    without_result,
)
from run_benchmarks.acceptance.warned import NOBODY, Warned, warnings_of
from run_benchmarks.results.loading import LoadedRun

NO_DATA = "data_read, data_write: no case of CASES has a data_dir_host"
TWO_HOSTS = "two hosts are one pair: measured, not judged"
GOOD_BESIDE = 3
"""Good hosts for each suspect when it is tested again, where there are as many: most pairs are then of good ones."""
MOST_NAMED = 5
"""Hosts of one sentence."""
MOST_WITHOUT = 3
"""Times that a stage that failed runs again, each without those whom the runs before suspect."""
SEEN_ONCE = "seen once"
NO_SUSPECTS: Mapping[str, Sequence[str]] = MappingProxyType({})
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")


@dataclass(frozen=True, kw_only=True)
class Looked:
    """Of a look at hosts. sick: who is to be taken out; unseen: things not to be looked at; unasked: those without
    which a host is not accepted, by host; missed: the checks that did not run, with which it is, by host; warnings: by
    host, pairs of a subject and a sentence, that take nobody out.
    """

    sick: Suspects = field(default_factory=dict)
    unseen: Sequence[str] = ()
    unasked: Mapping[str, Sequence[str]] = field(default_factory=dict)
    missed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    warnings: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)


class EndedError(Exception):
    """The acceptance cannot go on: a run was interrupted, or could not be started; the message says which, and why."""


class NoNodesError(EndedError):
    """A run got no nodes: it can go on without those that are out of service since the look before it."""


class _TooFewError(Exception):
    """Fewer hosts are left than the rung needs."""


@dataclass(kw_only=True)
class Climb:
    """The findings of the rungs so far.

    run: runs cases on hosts within seconds, and returns its folder's records, else ends all. examine: the check before
    the first rung; gate: the health of hosts after each run. data: folders of the hosts' data. tools: by rung, the
    tools of others that hosts have. planned: the rungs to do, without which nothing is ready. expected: the estimate of
    each, in their order. usual: figures of an earlier acceptance; measured: those of this one; usual_cases,
    measured_cases: the same of network and training, None without an earlier one. ran: the cases and hosts of each run.
    kinds: by host, of runs with suspects. doubts: reasons of `single` for which nothing that it measured is to be
    expected of others. missed: by host the checks of its health that did not run on some look at it.
    """

    vendor: str
    nproc: int
    hosts: list[str]
    budget_s: float
    run: Callable[[str, Cases, Sequence[str], int], LoadedRun]
    examine: Callable[[Sequence[str]], Looked]
    gate: Callable[[Sequence[str]], Looked]
    data: Sequence[DataPath] = ()
    tools: Mapping[str, Others] = field(default_factory=dict)
    planned: Sequence[str] = ()
    expected: Mapping[str, Estimate] = field(default_factory=dict)
    usual: Levels = field(default_factory=dict)
    measured: dict[str, dict[str, Usual]] = field(default_factory=dict)
    usual_cases: Known | None = None
    measured_cases: dict[str, CaseLevels] = field(default_factory=dict)
    ran: dict[str, tuple[list[str], list[str]]] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    rungs: list[RungRecord] = field(default_factory=list)
    warned: Warned = field(default_factory=Warned)
    missed: dict[str, list[str]] = field(default_factory=dict)
    _soak: int = 0
    _took: dict[str, float] = field(default_factory=dict)
    _is_short: bool = False
    _untested: set[str] = field(default_factory=set)
    _occasions: list[LoadedRun] = field(default_factory=list)
    _suspected: list[Suspects] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> list[str]:
        """Hosts that no rung has taken out."""
        gone = {host for rung in self.rungs for host in rung.out}
        return [host for host in self.hosts if host not in gone]

    def step(self, rung: str) -> RungRecord:
        """Do one rung, and keep its record beside the estimate of its time.

        Raises:
            EndedError: it was interrupted, or a run could not be made; the record says what was not judged.
        """
        hosts, began = self.left, time.monotonic()
        record = RungRecord(rung=rung, verdict="not run", hosts=hosts)
        estimate = self.expected.get(rung)
        if estimate is not None:
            record.estimated_seconds, record.estimated_from = round(estimate.seconds, 1), estimate.source
        done = {each.rung for each in self.rungs}
        needed = sum(each.seconds for name, each in self.expected.items() if name not in done)
        self.rungs.append(record)
        self._is_short = rung != HEALTH and needed > self._room
        try:
            if len(hosts) < FEWEST[rung]:
                record.reasons = [self._too_few(rung, hosts)]
            elif self._room < 1:
                record.reasons = [self._is_spent]
            else:
                if rung == HEALTH:
                    looked = self._noted(record, self.examine(hosts))
                    record.out, record.not_run = dict(looked.sick), [*looked.unseen]
                self._measure(record)
        except BaseException as error:
            said = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)
            _add_reasons(record, said)
            self._untested |= {*hosts}
            record.verdict = "fail" if record.out else record.verdict
            raise
        finally:
            record.seconds = round(time.monotonic() - began, 1)
        return record

    def leave(self, rungs: Sequence[str], why: str) -> None:
        """Note that these rungs are not done."""
        for rung in rungs:
            self.rungs.append(RungRecord(rung=rung, verdict="not run", reasons=[why], hosts=self.left))

    @property
    def _room(self) -> float:
        """The seconds that are left of the budget."""
        return self.budget_s - (time.monotonic() - self._began)

    @property
    def _is_spent(self) -> str:
        return f"the budget of {self.budget_s:g} s is spent"

    @property
    def _spent(self) -> str:
        """Says that nothing is left of the budget; "" while something is."""
        return self._is_spent if self._room < 1 else ""

    def _too_few(self, rung: str, hosts: Sequence[str]) -> str:
        if len(self.hosts) < FEWEST[rung]:
            return f"one host has no {rung}: name another beside it, or leave it out of --rungs"
        return f"{len(hosts)} of {len(self.hosts)} hosts left; it needs {FEWEST[rung]}"

    def _measure(self, record: RungRecord) -> None:
        """Run the stages, each on the hosts that the stages before have not taken out."""
        record.not_run += self.tools.get(record.rung, NO_OTHERS).missing
        if record.rung == SINGLE and not self.data:
            record.not_run.append(NO_DATA)
        if self._is_short:
            full = self._full(record.rung, record.hosts)
            record.shrunk = left_out(full, shortened(record.rung, full))
        stage = 0
        while stage < len(self._cases(record.rung, record.hosts)):
            hosts = [host for host in record.hosts if host not in record.out]
            try:
                if len(hosts) < FEWEST[record.rung]:
                    raise _TooFewError
                has_tools = TOOLS in self._cases(record.rung, hosts)[stage]
                self._count(record, self._measure_stage(record, stage, hosts), has_tools=has_tools)
            except _TooFewError:
                rest = [host for host in hosts if host not in record.out]
                _add_reasons(record, self._too_few(record.rung, rest))
                self._untested |= {*rest}
                break
            stage += 1
            if self._spent and stage < len(self._cases(record.rung, hosts)):
                record.reasons = list(dict.fromkeys([*record.reasons, self._spent]))
                self._untested |= {*hosts}
                break
        record.verdict = "fail" if record.out or record.reasons else "pass"

    def _count(self, record: RungRecord, seconds: float, *, has_tools: bool) -> None:
        """Note how long a run of a stage took that is counted apart; after the training decide if a soak has room."""
        if has_tools:
            record.tools, record.tools_seconds = self.tools[record.rung].calls, seconds
        elif self._soak:
            record.soak_seconds = seconds
        elif record.rung == WHOLE and not (record.out or record.reasons or record.shrunk):
            self._soak = soak_times(self._room, seconds)

    def _measure_stage(self, record: RungRecord, stage: int, hosts: Sequence[str]) -> float:
        """Run a stage, and take out the hosts that it proves or confirms to be bad. Returns the seconds of the run
        that was measured, if one was.
        """
        self._occasions, self._suspected = [], []
        try:
            loaded, found = self._occasion(record, stage, hosts)
            if loaded.record.verdict.is_measured:
                self._note(record, loaded)
                self._confirm(record, stage, hosts, found)
            else:
                loaded = self._without(record, stage, hosts, loaded, found)
            self._look_again(record, stage, loaded)
            others = (self._took[run.folder.name] for run in self._occasions if run is not loaded)
            record.again_seconds = round(record.again_seconds + sum(others), 1)
        finally:
            self._say_how_often(record)
        if loaded.record.verdict.is_measured:
            without = {*record.out, *record.unsteady, *self._untested}
            for kind, levels in usual_of(loaded, without, self.usual).items():
                self.measured.setdefault(kind, {}).update(levels)
            if not record.reasons:  # else what was measured is doubted
                self.measured_cases |= levels_of(loaded, without)
        return self._took[loaded.folder.name]

    def _say_how_often(self, record: RungRecord) -> None:
        """Say of the suspects of a stage that come and go, or that are out and were not named each time, on how many of
        the occasions in which they took part they were named.
        """
        took = Counter(host for run in self._occasions for host in self.ran[run.folder.name][1])
        named = Counter(host for found in self._suspected for host in found)
        for host, times in named.items():
            said = f"named on {times} of {took[host]} occasions"
            if host in record.out:
                record.out[host] += [said] if times < took[host] else []
            elif host in record.unsteady:  # of one device, two occasions would have taken it out
                record.unsteady[host] += [said, *(["each time another device"] if times > 1 else [])]

    def _note(self, record: RungRecord, loaded: LoadedRun) -> None:
        """Note of a run what needs no second occasion, before one that may be interrupted."""
        said = [each for about in (unjudged, not_against, beside_datasheet) for each in about(loaded, self.usual)]
        is_measured = loaded.record.verdict.is_measured
        if record.rung == NETWORK and is_measured and len(self.ran[loaded.folder.name][1]) < LEAST_OF_PAIRS:
            said.append(TWO_HOSTS)
        if self.usual_cases is not None:
            said += not_compared(loaded, self.usual_cases)
        record.not_run += [each for each in said if each not in record.not_run]
        self._doubt(record, *against_datasheet(loaded, self.usual), *in_vain(loaded))
        _add_reasons(record, *without_result(loaded))

    def _doubt(self, record: RungRecord, *reasons: str) -> None:
        """Fail a rung for what all of a kind measured."""
        _add_reasons(record, *reasons)
        self.doubts += reasons if record.rung == SINGLE else ()

    def _look_again(self, record: RungRecord, stage: int, loaded: LoadedRun) -> None:
        """Fail a rung for faults of which no host is known to be guilty and that two occasions of its stage show; tell
        those that one alone shows. Warnings that two show are not judged. `loaded`: whose faults are looked at again.

        One that concerns a host that is out went with it.
        """
        seen = [_standing(record, self._faults(run)) for run in self._occasions]
        place = self._occasions.index(loaded)
        others = [each for at, faults in enumerate(seen) for each in faults if at != place]
        once = [each for each in seen[place] if not _is_among(each, others)]
        hosts = [host for host in self.ran[loaded.folder.name][1] if host not in record.out]
        try:
            if once and len(hosts) >= FEWEST[record.rung]:
                seen[place] = [each for each in seen[place] if each not in once]
                if self._is_looked_at_again(record, stage, hosts, loaded, once):
                    seen[place] += once
                    seen.append(self._faults(self._occasions[-1]))
        finally:
            self._tell(record, [_standing(record, faults) for faults in seen])

    def _faults(self, run: LoadedRun) -> list[PartFinding]:
        """The faults of a run of which no host is known to be guilty."""
        return [*unattributed(run), *slow_together(run, choice_of(self.vendor).limit, self.usual_cases or {})]

    def _is_looked_at_again(
        self, record: RungRecord, stage: int, hosts: Sequence[str], loaded: LoadedRun, once: Sequence[PartFinding]
    ) -> bool:
        """Whether there was another occasion for faults of `loaded`; whom it and one before it name is out, its other
        suspects come and go. Without one it is noted that they were not tested again.
        """
        is_measured = loaded.record.verdict.is_measured
        why = self._is_spent if self._room < 1 else "it ended before" if is_measured else "its run failed"
        not_again = f": not tested again: {why}"
        if self._room < 1 or not is_measured:
            _add_faults(record, once, not_again)
            return False
        before: Suspects = {}
        for named in self._suspected:
            _append(before, named)
        try:
            again, found = self._occasion(record, stage, hosts)
        except BaseException:
            _add_faults(record, once, not_again)
            raise
        both, _ = agreed(before, found)
        record.out |= both
        record.unsteady = {host: said for host, said in record.unsteady.items() if host not in both}
        others = {host: said for host, said in found.items() if host not in both}
        if again.record.verdict.is_measured:
            _append(record.unsteady, others)
        else:
            _add_reasons(record, _why(again))
            self._leave_in_doubt(record, others, _why(again))
        return True

    def _tell(self, record: RungRecord, seen: Sequence[Sequence[PartFinding]]) -> None:
        """Fail a rung for the faults that two occasions show, each once, and warn of the others. seen: by occasion."""
        steady: list[PartFinding] = []
        for place, faults in enumerate(seen):
            others = [each for at, other in enumerate(seen) for each in other if at != place]
            again = [each for each in faults if _is_among(each, others)]
            new = [each for each in again if not _is_among(each, steady)]
            steady += new
            _add_faults(record, new)
            self.warned.add(_once([each for each in faults if each not in again], place))

    def _cases(self, rung: str, hosts: Sequence[str]) -> list[Cases]:
        """The stages of a rung on hosts, of a shrunk one the short ones; a soak is one once there is room for it."""
        full = self._full(rung, hosts)
        found = shortened(rung, full) if self._is_short else full
        return [*found, soak_of(found[-1], self._soak)] if rung == WHOLE and self._soak else found

    def _full(self, rung: str, hosts: Sequence[str]) -> list[Cases]:
        return stages_of(rung, self.vendor, hosts, self.nproc, self.data, self.tools.get(rung, NO_OTHERS))

    def _without(
        self, record: RungRecord, stage: int, hosts: Sequence[str], loaded: LoadedRun, found: Suspects
    ) -> LoadedRun:
        """Run again without the suspects, and without whom that run suspects: only if one passes was the failure
        theirs, and not the workload's. Then they are tested again. Returns the run that passed, else the failed one.
        """
        reason = _why(loaded)
        last, tried, suspects = list(hosts), list(hosts), dict(found)
        least = 2 if record.rung in (NETWORK, WHOLE) else 1  # that one host alone passes proves nothing of several
        for _ in range(MOST_WITHOUT):
            rest = [host for host in hosts if host not in suspects and host not in record.out]
            if len(rest) == len(last) or len(rest) < least or self._room < 1:
                break
            with self._doubted(record, suspects):
                again, others = self._occasion(record, stage, rest)
            if again.record.verdict.is_measured:
                self._note(record, again)
                guilty = suspects if len(suspects) == 1 else ()
                self._confirm(record, stage, hosts, suspects | others, guilty)
                return again
            last, suspects = rest, suspects | others
            if again.record.verdict.is_failure:
                tried = rest
        alone = [host for host in hosts if host not in tried]
        _add_reasons(record, reason, f"also without {', '.join(alone)}" if alone else "", self._spent)
        record.not_run += _not_again(suspects, record.out)
        self._untested |= {*hosts}
        self._note(record, loaded)
        return loaded

    def _confirm(
        self, record: RungRecord, stage: int, hosts: Sequence[str], found: Suspects, guilty: Container[str] = ()
    ) -> None:
        """Test the suspects again, beside good hosts if there are any. guilty: the one with whom it failed, and without
        whom it passed: that it fails with that one again, and names no other, names it.
        """
        if not found:
            return
        tested = self._beside(found, [host for host in hosts if host not in record.out])
        is_alone = len(tested) < FEWEST[record.rung]
        if is_alone or self._room < 1:
            self._leave_in_doubt(record, found, "no other host is left" if is_alone else self._is_spent)
            return
        before = {*record.out}
        with self._doubted(record, found):
            loaded, again = self._occasion(record, stage, tested, found)
        is_measured, again = _but_rails(record, loaded, again)
        both, once = agreed(found, again)
        once = {host: said for host, said in once.items() if host not in record.out}
        if is_measured:
            _append(record.unsteady, once)
        elif self._room < 1:
            self._leave_in_doubt(record, found | once, self._is_spent)
            return
        else:
            is_proof = loaded.record.verdict.is_failure and not again and record.out.keys() == before
            both |= self._failed_again(record, once, guilty if is_proof else (), _why(loaded))
        record.out |= both

    def _beside(self, found: Suspects, hosts: Sequence[str]) -> list[str]:
        """The suspects among hosts, and good ones, in their order; doubtful ones if no others of a kind are left."""
        doubtful = self._untested.union(*(rung.unsteady for rung in self.rungs))
        good = sorted((host for host in hosts if host not in found), key=doubtful.__contains__)
        beside = alike_first(good, found, self.kinds, GOOD_BESIDE)
        return [host for host in hosts if host in found or host in beside]

    def _failed_again(self, record: RungRecord, once: Suspects, guilty: Container[str], why: str) -> Suspects:
        """The guilty among the suspects of a run that failed again; the others are left in doubt."""
        failed = {host: said for host, said in once.items() if host in guilty}
        self._suspected[-1] |= failed
        rest = {host: said for host, said in once.items() if host not in failed}
        self._leave_in_doubt(record, rest, why)
        return {host: [*said, f"again: it fails with this host: {why}"] for host, said in failed.items()}

    def _leave_in_doubt(self, record: RungRecord, found: Suspects, why: str) -> None:
        """Note the suspects that could not be tested again; they are neither out nor accepted."""
        if found:
            _add_reasons(record, f"suspects are left in doubt: {why}")
            record.not_run += _not_again(found)
            self._untested |= {*found}

    @contextmanager
    def _doubted(self, record: RungRecord, found: Suspects) -> Iterator[None]:
        """Leave these suspects in doubt where the acceptance ends meanwhile."""
        try:
            yield
        except BaseException:
            self._leave_in_doubt(record, found, "it ended before")
            raise

    def _occasion(
        self,
        record: RungRecord,
        stage: int,
        hosts: Sequence[str],
        suspects: Mapping[str, Sequence[str]] = NO_SUSPECTS,
    ) -> tuple[LoadedRun, Suspects]:
        """One run of a stage on hosts, and whom it suspects; those of whom it proves something are out. suspects: those
        for whom it is made.

        Raises:
            EndedError: it was interrupted, or could not be made.
        """
        loaded, hosts = self._run_in_service(record, stage, hosts, suspects)
        self.warned.add(warnings_of(loaded))
        looked = self._noted(record, self.gate(hosts))
        rounds = ", ".join(self.ran[loaded.folder.name][0])
        after = f"after {loaded.folder.name}, one round of {rounds}: "
        _append(record.out, {host: [after + each for each in said] for host, said in looked.sick.items()})
        self._doubt(record, *(each for each in unlike(loaded) if each not in record.reasons))
        known = {said for rung in self.rungs for said in rung.not_run}
        record.not_run += [
            said
            for said in dict.fromkeys([*not_run_in(loaded), *idle_ports(loaded, EVERY_LINK), *looked.unseen])
            if said not in known
        ]
        self.kinds |= {host: kind for case in loaded.rounds for host, kind in kinds_of(loaded, case).items()}
        found = self._suspects_in(loaded)
        record.out |= {host: said for host, said in found.items() if host in proven(loaded) - looked.sick.keys()}
        self._occasions.append(loaded)
        self._suspected.append(found)
        return loaded, {host: said for host, said in found.items() if host not in record.out}

    def _suspects_in(self, run: LoadedRun) -> Suspects:
        """The hosts that a run suspects, with the evidence, also beside an earlier acceptance."""
        limit = choice_of(self.vendor).limit
        found = suspects_of(run, limit, self.usual)
        _append(found, slow_hosts(run, limit, self.usual_cases or {}))
        return found

    def _run_in_service(
        self, record: RungRecord, stage: int, hosts: Sequence[str], suspects: Mapping[str, Sequence[str]]
    ) -> tuple[LoadedRun, Sequence[str]]:
        """Run a stage on hosts, or, where they get no nodes, on those that a look at them leaves; which those were."""
        while True:
            try:
                return self._run(record, stage, hosts, suspects), hosts
            except NoNodesError:
                gone = self._noted(record, self.gate(hosts)).sick
                if not gone:
                    raise
            _append(record.out, gone)
            hosts = [host for host in hosts if host not in gone]
            if len(hosts) < FEWEST[record.rung]:
                raise _TooFewError

    def _run(
        self, record: RungRecord, stage: int, hosts: Sequence[str], suspects: Mapping[str, Sequence[str]]
    ) -> LoadedRun:
        """Run a stage on hosts, and note that it ran."""
        cases = with_rails(self._cases(record.rung, hosts)[stage], self.vendor, hosts, suspects)
        began = time.monotonic()
        loaded = self.run(f"{record.rung}{len(record.runs) + 1}", cases, hosts, max(1, int(self._room)))
        record.runs.append(loaded.folder.name)
        self.ran[loaded.folder.name] = list(cases), list(hosts)
        self._took[loaded.folder.name] = round(time.monotonic() - began, 1)
        return loaded

    def _noted(self, record: RungRecord, looked: Looked) -> Looked:
        """Keep the warnings of a look at hosts, and fail the rung for what it did not see, which accepts none."""
        self.warned.add(looked.warnings)
        for host, checks in looked.missed.items():
            if checks:
                self.missed[host] = list(dict.fromkeys([*self.missed.get(host, []), *checks]))
        unasked: dict[str, list[str]] = {}
        for host, things in looked.unasked.items():
            for what in things if host not in looked.sick else ():
                unasked.setdefault(what, []).append(host)
        ways = Counter(what.partition(": ")[0] for what in unasked)
        for what in [*unasked]:
            subject = what.partition(": ")[0]
            if ways[subject] > MOST_NAMED:  # each host says it in other words
                unasked.setdefault(subject, []).extend(unasked.pop(what))
        for what, hosts in unasked.items():
            said = f"not looked at on {few(hosts, MOST_NAMED)}: {what}"
            _add_reasons(record, said if said not in record.reasons else "")
            self._untested |= {*hosts}
        return looked

    def states(self) -> dict[str, HostState]:
        """The state of each host after the rungs so far."""
        found: dict[str, HostState] = {}
        untested = {host for rung in self.rungs if rung.verdict == "not run" for host in rung.hosts} | self._untested
        if not self._is_whole:
            untested |= {*self.hosts}
        for host in self.hosts:
            if any(host in rung.out for rung in self.rungs):
                found[host] = "out"
            elif any(host in rung.unsteady for rung in self.rungs):
                found[host] = "comes and goes"
            else:
                found[host] = "not tested" if host in untested or not self.rungs else "accepted"
        return found

    @property
    def proofs(self) -> list[tuple[str, str]]:
        """Run and case of those in which a host took part that its rung took out."""
        return [
            (run, case)
            for rung in self.rungs
            for run in rung.runs
            if set(self.ran[run][1]) & rung.out.keys()
            for case in self.ran[run][0]
        ]

    @property
    def ready(self) -> bool:
        """Whether every rung passed, none was left out, and no host is in doubt."""
        return self._is_whole and all(rung.verdict == "pass" and not rung.unsteady for rung in self.rungs)

    @property
    def _is_whole(self) -> bool:
        return {*self.planned} <= {rung.rung for rung in self.rungs}


def _standing(record: RungRecord, faults: Sequence[PartFinding]) -> list[PartFinding]:
    """The faults but those of hosts that are out."""
    return [each for each in faults if record.out.keys().isdisjoint(each.hosts)]


def _is_among(fault: PartFinding, others: Sequence[PartFinding]) -> bool:
    """Whether one of the others is of the same kind of part and has two hosts of this fault's, or its only one; a fault
    is another time of a warning, no warning one of a fault.
    """
    severities = {"fault", fault.severity}
    alike = (each for each in others if each.part == fault.part and each.severity in severities)
    if not fault.hosts:
        return any((each.hosts, each.kind, each.device) == ((), fault.kind, fault.device) for each in alike)
    return any(len({*each.hosts} & {*fault.hosts}) >= min(2, len(fault.hosts)) for each in alike)


def _once(faults: Sequence[PartFinding], place: int) -> dict[str, list[tuple[str, str]]]:
    """The warnings by host of faults that one occasion alone showed, with its place among those of the stage."""
    hosts = dict.fromkeys(host for each in faults for host in each.hosts or (NOBODY,))
    subject = f"seen once, on the {ORDINALS[place]} occasion" if place else SEEN_ONCE
    return {host: [(subject, each.sentence) for each in faults if host in (each.hosts or (NOBODY,))] for host in hosts}


def _not_again(found: Suspects, out: Container[str] = ()) -> list[str]:
    """A sentence on each suspect that is neither confirmed nor cleared, nor out."""
    doubtful = ((host, "; ".join(said)) for host, said in found.items() if host not in out)
    return [f"{host}: suspected, left in doubt: {said}" for host, said in doubtful]


def _append(found: Suspects, more: Suspects) -> None:
    """Add suspects to those found before, whose evidence stays."""
    for host, said in more.items():
        found.setdefault(host, []).extend(said)


def _add_faults(record: RungRecord, faults: Sequence[PartFinding], why: str = "") -> None:
    """Note faults, which fail the rung, and warnings, which were not judged, each with what is to be said of it."""
    _add_reasons(record, *(each.sentence + why for each in faults if each.severity == "fault"))
    record.not_run += [each.sentence + why for each in faults if each.severity == "warning"]


def _add_reasons(record: RungRecord, *reasons: str) -> None:
    record.reasons += filter(None, reasons)


def _but_rails(record: RungRecord, run: LoadedRun, found: Suspects) -> tuple[bool, Suspects]:
    """Whether a run measured all cases but RAILS, and the suspects without what the failure of RAILS says of them: its
    rank 0 is of a suspect, and much that fails is put down to rank 0. That it failed is noted.
    """
    if {case.name for case in run.record.cases if not case.verdict.is_measured} != {RAILS}:
        return run.record.verdict.is_measured, found
    record.not_run.append(_why(run))
    kept = {host: [each for each in said if not each.startswith(f"{RAILS}: ")] for host, said in found.items()}
    return True, {host: said for host, said in kept.items() if said}


def _why(run: LoadedRun) -> str:
    """Why the cases of a run were not measured."""
    return "; ".join(f"{case.name}: {case.reason}" for case in run.record.cases if case.reason)[:500] or "it failed"
