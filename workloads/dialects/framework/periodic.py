"""Repeats what a rank does until it is in a state that it was in before: from there on it goes in turns."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import chain, repeat
from typing import TypeVar

from workloads.rows.blocks import Block
from workloads.rows.calls import Call

State = TypeVar("State", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Periodic:
    """Blocks of calls: each of `head`, all of `cycle` `times` times, each of `tail`."""

    head: tuple[Block[Call], ...] = ()
    cycle: tuple[Block[Call], ...] = ()
    times: int = 0
    tail: tuple[Block[Call], ...] = ()

    def __iter__(self) -> Iterator[Block[Call]]:
        cycles = chain.from_iterable(repeat(self.cycle, self.times))
        return chain(self.head, cycles, self.tail)

    @property
    def steady(self) -> Block[Call]:
        """The part that is repeated; where nothing is, the last one."""
        return (self.cycle[:1] or self.tail[-1:] or self.head[-1:])[0]

    def numbered(self) -> Block[Call]:
        """One block of all, each as the micro-batch of its number."""
        length, first = len(self.cycle), len(self.head)
        last = first + length * self.times
        head = [block.shifted((0, number)) for number, block in enumerate(self.head)]
        cycle = [block.shifted((0, number)) for number, block in enumerate(self.cycle, start=first)]
        tail = [block.shifted((0, number)) for number, block in enumerate(self.tail, start=last)]
        return Block([*head, Block(cycle, self.times, (0, length)), *tail])


def in_turns(count: int, state: State, run: Callable[[State], tuple[Block[Call], State]]) -> tuple[Periodic, State]:
    """Run `count` times, each from the state that the one before left. Returns what was done, and the last state."""
    states: list[State] = []
    blocks: list[Block[Call]] = []
    while len(blocks) < count and state not in states:
        states.append(state)
        block, state = run(state)
        blocks.append(block)
    if len(blocks) == count:
        return Periodic(head=tuple(blocks)), state
    first = states.index(state)
    cycle = tuple(blocks[first:])
    times, rest = divmod(count - first, len(cycle))
    return Periodic(tuple(blocks[:first]), cycle, times, cycle[:rest]), states[first + rest]
