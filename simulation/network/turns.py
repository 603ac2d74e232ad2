"""Lets ranks take the collectives that queue up in one order, so that none waits for one that another never begins."""

from collections.abc import Sequence

from simulation.network.job import QUEUES, Job


def teams_of(job: Job, kinds: Sequence[int] | None = None) -> list[int]:
    """The team of each rank, named by its least rank: whoever shares collectives that queue up, directly or not.

    With `kinds`, the kind of each rank, the teams of ranks of one kind are one, too: they do the same at the same time.
    """
    leader = list(range(job.ranks))

    def found(rank: int) -> int:
        while leader[rank] != rank:
            leader[rank] = leader[leader[rank]]
            rank = leader[rank]
        return rank

    queued = {phase.collective for program in job.programs for phase in program if phase.mode == QUEUES} - {None}
    sharing = {id(each.groups): each.groups for number, each in enumerate(job.collectives) if number in queued}
    alike: dict[int, list[int]] = {}
    for rank, kind in enumerate(kinds or ()):
        alike.setdefault(kind, []).append(rank)
    together = [group.members for groups in sharing.values() for group in groups]
    for first, *others in (*together, *alike.values()):
        for other in others:
            one, two = found(first), found(other)
            leader[max(one, two)] = min(one, two)
    return [found(rank) for rank in range(job.ranks)]


class QueueOfRank:
    """The collectives of a rank that do not block: `running` (None: none), and those that wait, the earliest first.

    `order` is that of the team, which whoever takes one first lengthens: by the latest of its own.
    """

    def __init__(self, order: list[int]) -> None:
        self.running: int | None = None
        self.waiting: list[int] = []
        self._order, self._taken = order, 0

    def take(self) -> bool:
        """Let the next one run; returns whether there is one: what the team took may be still to come."""
        if not self.waiting:
            return False
        if self._taken == len(self._order):
            self._order.append(self.waiting[-1])
        wanted = self._order[self._taken]
        if wanted not in self.waiting:
            return False
        self.waiting.remove(wanted)
        self.running, self._taken = wanted, self._taken + 1
        return True
