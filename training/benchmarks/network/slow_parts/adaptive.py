"""Searches bad hosts and bad links with few rounds: batches first, then their halves, then suspects with good hosts.

The search is a generator: it yields rounds of disjoint groups of hosts, receives what each group measured, and returns
what is bad. It knows hosts by their places 0 .. count - 1 and measures nothing, so that a simulated cluster can run it.

Every group of a round is compared with the others of its size in that round. A suspicious group is cut in halves; if
neither half is suspicious, the fault lies between them, and parts of both halves are joined. Two hosts that remain are
each paired with good hosts: a host that shows the same symptom with most of them is bad. If both are fine with all of
them, their link is bad; that is said only where links are searched, as a fault that comes and goes looks the same. At
the end the groups of the bad hosts are measured again without them, as a bad host hides others.

Source: adaptive group testing by halves as in Hwang, "A method for detecting all defective members in a population by
group testing" (1972); batches that meet once as the lines of an affine plane of prime order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Generator, Sequence
from dataclasses import dataclass
from itertools import chain, product, zip_longest
from typing import Literal

from training.benchmarks.network.patterns.designs import HostLayout, Members, batches, lone_pairs, meetings
from training.benchmarks.network.slow_parts.comparison import (
    PARTNERS,
    Excess,
    PeerComparison,
    ScanRound,
    Times,
    together,
)
from training.benchmarks.network.slow_parts.judge import Bounds

Search = Literal["hosts", "links"]
LEAST_HOSTS = 4
# Raised when the same times lead to other rounds, another result, or other lists in FINISHED: logs of other versions
# are not searched again.
VERSION = 3
# How often groups of bad hosts are searched again without them.
PASSES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class BadMembers:
    """A bad host, or the two ends of a bad link, and by how much it exceeds its peers: by symptom, the worst first."""

    members: Members
    excesses: tuple[Excess, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanResult:
    """The bad parts, the rounds that the search took (a repeated round counts once), and slow pairs without a sure
    reason.
    """

    bad: tuple[BadMembers, ...]
    rounds: int
    undecided: tuple[Members, ...] = ()


SearchSteps = Generator[ScanRound, Sequence[Times], ScanResult]
# By a host or a link what it showed in each round that it was measured in.
_Seen = dict[Members, list[tuple[Excess, ...]]]


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A fault within `first`, or, if there is a `second`, between the two, which are each fine."""

    first: Members
    second: Members = ()

    @property
    def members(self) -> Members:
        return self.first + self.second

    @property
    def doubtful(self) -> Members:
        """Those who may not serve as good hosts while the others are measured."""
        return self.second or self.first

    def parts(self) -> list[_Suspect]:
        """The smaller suspects of which one holds the fault, unless it lies between the halves of `first`."""
        if self.second:
            return [
                _Suspect(one, other)
                for one, other in product(_halves(self.first), _halves(self.second))
                if one and other
            ]
        return [_Suspect(half) for half in _halves(self.first)]

    def following(self, slow: Container[Members]) -> list[_Suspect]:
        """The smaller suspects by which of its parts are slow; where none is, the fault lies between the halves."""
        hit = [part for part in self.parts() if part.members in slow]
        return hit if hit or self.second else [_Suspect(*_halves(self.first))]


def _halves(members: Members) -> tuple[Members, Members]:
    middle = (len(members) + 1) // 2
    return members[:middle], members[middle:]


def screening(layout: HostLayout) -> list[list[Members]]:
    """The rounds of groups with which a search begins."""
    return [each for each in (*batches(layout.cells()), lone_pairs(layout)) if each]


def unmatched(layout: HostLayout, rounds: Sequence[Sequence[Members]]) -> list[Members]:
    """The groups that have none of their kind among the groups of these rounds, with which to compare them."""
    groups = [*chain.from_iterable(rounds)]
    alike = Counter(map(layout.like, groups))
    return [group for group in groups if alike[layout.like(group)] == 1]


def uncompared(layout: HostLayout) -> list[int]:
    """The hosts of which a search says nothing: in no group, or in one that no other hosts make a group like."""
    rounds, count = screening(layout), len(layout.kinds)
    alone = {
        group
        for group in unmatched(layout, rounds)
        if not layout.groups_like([group], [host for host in range(count) if host not in group])
    }
    compared = {host for group in chain.from_iterable(rounds) if group not in alone for host in group}
    return [host for host in range(count) if host not in compared]


class AdaptiveSearch:
    """One search among `count` hosts, by a comparison; `find` says whether every pair of hosts must meet in some group.

    By the `layout` groups lie within a rack and a kind of host, where uplinks and other generations change no time.
    """

    def __init__(
        self, count: int, comparison: PeerComparison, find: Search = "hosts", layout: HostLayout | None = None
    ) -> None:
        self._count, self._comparison, self._find = count, comparison, find
        self._layout = layout or HostLayout.flat(count)
        self._rounds = 0
        # Hosts that no control group may hold: bad ones, and those that may be.
        self._bad: set[int] = set()
        self._doubtful: set[int] = set()

    def run(self) -> SearchSteps:
        """The search; see the module.

        Raises:
            ValueError: there are fewer than LEAST_HOSTS hosts, or none is like enough others to be compared.
        """
        if self._count < LEAST_HOSTS:
            raise ValueError(f"{self._count} hosts: a search compares groups and needs {LEAST_HOSTS} hosts or more")
        if len(uncompared(self._layout)) == self._count:
            raise ValueError(
                f"{self._count} hosts of which too few are alike: a search compares hosts of one kind,"
                " within racks or across them"
            )
        undecided: list[Members] = []
        rounds = screening(self._layout)
        suspicious = yield from self._screened("batches", rounds, unmatched(self._layout, rounds))
        bad = yield from self._search(suspicious, undecided)
        if self._find == "links":
            good = [tuple(host for host in cell if host not in self._bad) for cell in self._layout.cells()]
            of_cells = [
                [[tuple(cell[place] for place in group) for group in groups] for groups in meetings(len(cell))]
                for cell in good
            ]
            together = [[*chain(*each)] for each in zip_longest(*of_cells, fillvalue=())]
            suspicious = yield from self._screened("every two hosts once", together)
            bad += yield from self._search(suspicious, undecided)
        return ScanResult(bad=tuple(bad), rounds=self._rounds, undecided=tuple(undecided))

    def _screened(
        self, purpose: str, rounds: Sequence[Sequence[Members]], unlike: Sequence[Members] = ()
    ) -> Generator[ScanRound, Sequence[Times], list[Members]]:
        """Measure rounds; returns the suspicious groups. `unlike`: those of the groups that are like no other, and so
        are measured once more beside others of their sort, if good hosts can make such.
        """
        suspicious: list[Members] = []
        for number, groups in enumerate(rounds, start=1):
            found = yield from self._measured(f"{purpose} {number} of {len(rounds)}", groups, groups)
            suspicious += found
        self._doubtful = {*chain(*suspicious)}
        comparable = [group for group in unlike if self._controls([group], {*group})]
        suspicious += yield from self._tested(f"{purpose} beside others of their sort", comparable)
        return suspicious

    def _search(
        self, suspicious: Sequence[Members], undecided: list[Members]
    ) -> Generator[ScanRound, Sequence[Times], list[BadMembers]]:
        """Search in suspicious groups until nothing new is found."""
        bad: list[BadMembers] = []
        for _ in range(PASSES):
            pairs = yield from self._narrowed(suspicious)
            new = [each for each in (yield from self._confirmed(pairs, undecided)) if each.members not in _names(bad)]
            bad += new
            named = {each.members[0] for each in new if len(each.members) == 1}
            self._bad |= named
            suspicious = [group for group in suspicious if named & set(group)]
            if not suspicious:
                break
            rest = [tuple(host for host in group if host not in self._bad) for group in suspicious]
            self._doubtful = {*chain(*rest)}
            suspicious = list((yield from self._tested("batches without their bad hosts", rest)))
        self._doubtful = set()
        return bad

    def _measured(
        self, purpose: str, groups: Sequence[Members], tests: Sequence[Members]
    ) -> Generator[ScanRound, Sequence[Times], dict[Members, tuple[Excess, ...]]]:
        """Measure a round; returns the suspicious among `tests`."""
        self._rounds += 1
        times = yield ScanRound(purpose=purpose, groups=tuple(groups))
        return self._comparison.suspicious(groups, tests, times, self._layout.like)

    def _narrowed(self, suspicious: Sequence[Members]) -> Generator[ScanRound, Sequence[Times], list[Members]]:
        """Cut suspicious groups down to pairs of hosts."""
        pairs: dict[Members, None] = {}
        left = [_Suspect(group) for group in suspicious if len(group) > 1]
        while left:
            pairs |= dict.fromkeys(tuple(sorted(each.members)) for each in left if len(each.members) == 2)
            left = [each for each in left if len(each.members) > 2]
            self._doubtful = {host for each in left for host in each.doubtful}
            tests = dict.fromkeys(part.members for each in left for part in each.parts() if len(part.members) > 1)
            found = yield from self._tested("parts of suspicious batches", list(tests))
            left = list(dict.fromkeys(part for each in left for part in each.following(found)))
        return list(pairs)

    def _confirmed(
        self, pairs: Sequence[Members], undecided: list[Members]
    ) -> Generator[ScanRound, Sequence[Times], list[BadMembers]]:
        """Measure each host of the pairs with known-good hosts, then the pairs whose hosts are both fine."""
        hosts = list(dict.fromkeys(host for pair in pairs for host in pair))
        seen = yield from self._seen_with_good(hosts)
        found = _bad_of(seen)
        accused = {each.members[0] for each in found}
        unclear = _slow_at_times(seen) - accused
        links = [pair for pair in pairs if not accused & set(pair)]
        doubted = [pair for pair in links if self._find == "hosts" or unclear & set(pair)]
        undecided += doubted
        self._doubtful = accused
        again = yield from self._seen_again([pair for pair in links if pair not in doubted])
        return found + _bad_of({pair: every for pair, every in again.items() if all(every)})

    def _seen_with_good(self, hosts: Sequence[int]) -> Generator[ScanRound, Sequence[Times], _Seen]:
        """Measure each host with known-good hosts, a different one in each round; none where there is none left."""
        self._doubtful = set(hosts)
        seen: _Seen = {(host,): [] for host in hosts}
        partners: dict[int, set[int]] = {host: set() for host in hosts}
        for _ in range(PARTNERS):
            tests = self._with_good(hosts, partners)
            slow = yield from self._tested("suspects with known-good hosts", list(tests))
            for pair, host in tests.items():
                seen[(host,)].append(slow.get(pair, ()))
        return seen

    def _seen_again(self, links: Sequence[Members]) -> Generator[ScanRound, Sequence[Times], _Seen]:
        """Measure suspicious links as often as a suspect is measured."""
        seen: _Seen = {pair: [] for pair in links}
        for _ in range(PARTNERS if links else 0):
            slow = yield from self._tested("suspicious links", links)
            for pair in links:
                seen[pair].append(slow.get(pair, ()))
        return seen

    def _with_good(self, hosts: Sequence[int], partners: dict[int, set[int]]) -> dict[Members, int]:
        """Each host paired with the nearest known-good one that it has not met, a different one where there are enough;
        the new ones are added to `partners`.
        """
        good = [host for host in range(self._count) if host not in self._bad | self._doubtful]
        taken: set[int] = set()
        made: dict[Members, int] = {}
        for host in hosts:
            free = [other for other in good if other not in partners[host]]
            if free:
                other = min(free, key=lambda each: (*self._apart(host, each), each in taken, abs(each - host), each))
                taken.add(other)
                partners[host].add(other)
                made[min(host, other), max(host, other)] = host
        return made

    def _apart(self, one: int, other: int) -> tuple[bool, bool]:
        """Whether two hosts are of different kinds, and in different racks."""
        racks, kinds = self._layout.racks, self._layout.kinds
        return kinds[one] != kinds[other], racks[one] != racks[other]

    def _tested(
        self, purpose: str, tests: Sequence[Members]
    ) -> Generator[ScanRound, Sequence[Times], dict[Members, tuple[Excess, ...]]]:
        """Measure `tests` in as few rounds as their common hosts allow, with good hosts in groups of the same sizes."""
        found: dict[Members, tuple[Excess, ...]] = {}
        waiting = [test for test in dict.fromkeys(tests) if len(test) > 1]
        while waiting:
            busy: set[int] = set()
            now: list[Members] = []
            for test in waiting:
                if not busy & set(test):
                    now.append(test)
                    busy.update(test)
            waiting = [test for test in waiting if test not in set(now)]
            found |= yield from self._measured(purpose, [*now, *self._controls(now, busy)], now)
        return found

    def _controls(self, tests: Sequence[Members], busy: set[int]) -> list[Members]:
        """Groups of good hosts that are like the tests."""
        no_controls = busy | self._bad | self._doubtful
        free = [host for host in range(self._count) if host not in no_controls]
        return self._layout.groups_like(tests, free)


def expected_rounds(count: int, find: Search, layout: HostLayout | None = None) -> tuple[int, int]:
    """The rounds of a search where nothing is bad, and where one host is, without noise."""

    def needed(slow: int | None) -> int:
        steps = AdaptiveSearch(count, PeerComparison(Bounds(slow_percent=15)), find, layout).run()
        this_round = next(steps)
        while True:
            times: Times = {group: {"latency": 2.0 if slow in group else 1.0} for group in this_round.groups}
            try:
                this_round = steps.send([times])
            except StopIteration as end:
                rounds: int = end.value.rounds
                return rounds

    return needed(None), needed(count - 1)


def _bad_of(seen: _Seen) -> list[BadMembers]:
    """Those that show the same symptom in most of their rounds."""
    return [
        BadMembers(members=members, excesses=excesses)
        for members, every in seen.items()
        if (excesses := together(every))
    ]


def _slow_at_times(seen: _Seen) -> set[int]:
    """The hosts that were slow with some good host, or met none.

    Unless slow in the same way with most, neither such a host nor a link of it is accused.
    """
    return {host for (host,), every in seen.items() if any(every) or not every}


def _names(bad: Sequence[BadMembers]) -> set[Members]:
    return {each.members for each in bad}
