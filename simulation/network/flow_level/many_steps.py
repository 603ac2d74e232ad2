"""Finds how long a collective of many equal steps takes from a run of fewer: soon each takes as long as the others."""

from collections.abc import Callable, Sequence
from itertools import count

from simulation.network.flow_level.quotient import Classes
from simulation.network.flow_level.work import Work

FEWEST = 1024  # steps of the first run; each further one has four times as many
WORTH = 2  # times as many steps as are simulated are worth it
SAME = 0.001  # by which part the steps of the third and the last quarter differ at most


def in_fewer_steps(classes: Classes, run: Callable[[Classes], Work]) -> tuple[Work, int, int] | None:
    """The run of the job's only collective, found by one of fewer steps, how many these are, and how many it has; None
    if it has too few or they do not tell.

    Every part ends so much later as the missing steps take. The state in it is that of the run of fewer steps.
    """
    several = {classes.hop(colour).steps for colour in classes.first_hop}
    if len(several) != 1:
        return None
    (steps,) = several
    for attempt in count():
        few = FEWEST * 4**attempt
        if few * WORTH > steps:
            return None
        work = run(classes.shortened(few))
        took = _step(work, few)
        if took:
            work.delay((steps - few) * took)
            return work, few, steps
    return None


def _step(work: Work, steps: int) -> float | None:
    """How long a step of the second half takes (ns); None if its two quarters differ."""
    state, edges = work.built.state, [steps // 2, 3 * steps // 4, steps - 1]
    half, quarter, last = ([float(state.start[begin + edge]) for begin in state.hop_begin] for edge in edges)
    third, fourth = _mean(half, quarter, edges[1] - edges[0]), _mean(quarter, last, edges[2] - edges[1])
    return _mean(half, last, edges[2] - edges[0]) if abs(third - fourth) <= SAME * fourth else None


def _mean(begins: Sequence[float], ends: Sequence[float], steps: int) -> float:
    return (sum(ends) - sum(begins)) / (len(begins) * steps)
