"""Puts the calls of a layer into SimAI's rows: a module's forward calls stand beside its backward calls.

SimAI goes forward through all rows, then backward from the last to the first, so backward calls stand in reverse.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import groupby, zip_longest
from operator import itemgetter

from workloads.dialects.framework.simai_times import EMBEDDING, LOSS, ModuleTimes
from workloads.formats.simai import WorkItem
from workloads.formats.simai_text import NONE, REDUCESCATTER, WORDS, Phase
from workloads.rows.ranks import split_module
from workloads.rows.traced_op import Call, Event, Use

COLLECTIVE = WORDS | {"reduce": REDUCESCATTER}
"""SimAI's collectives. A reduction to an owner is its share of a reduce-scatter."""
TENSOR = ("tp", "tp_cp", "expert_tp")
"""Groups that SimAI has without a suffix in the first two columns."""
DATA = ("dp", "dp_cp", "dp_shard")
"""Groups that it has without a suffix in the third column."""
SUFFIX = {"ep": "_EP", "expert_dp": "_DP_EP", "tp_ep": "_EP_TP", "embedding": "_EMBEDDING"}
SUFFIX |= dict.fromkeys((*TENSOR, *DATA), "")
"""How a group is named; all others are all ranks. SimAI itself knows `_EP` and `_DP_EP`."""
STILL = Phase(0)
_Run = dict[tuple[str, int], list[Call]]
"""Calls of a module, by its name and how often it came before in the pass."""


def phase(call: Call, compute: int = 0) -> Phase:
    """A column with this collective."""
    return Phase(compute, COLLECTIVE[call.comm_type.name] + SUFFIX.get(call.group, "_ALL"), call.bytes)


def single(call: Call, name: str) -> WorkItem:
    """A row with one call and no computation: in the column of input gradients for a tensor-parallel group."""
    if call.group in TENSOR:
        return WorkItem(name, STILL, phase(call), STILL)
    return WorkItem(name, STILL, STILL, phase(call))


def layer_rows(forward: Iterable[Event], backward: Iterable[Event], times: ModuleTimes) -> list[WorkItem]:
    """The rows of a layer, of the embedding or of the head; each module with weights computes in its first row."""
    forward = list(forward)
    there, back = _runs(forward), _runs(reversed(list(backward)))
    weighted = {(_module(event), 0) for event in forward if isinstance(event, Use)}
    rows = []
    for key in dict.fromkeys([*there, *back]):
        name = key[0]
        pairs = zip_longest(reversed(there.get(key, ())), reversed(back.get(key, ())))
        found = [
            WorkItem(name, phase(each) if each else STILL, phase(other) if other else STILL, STILL)
            for each, other in pairs
        ]
        found.reverse()
        if key in weighted:
            found[:1] = [_computing(found[0] if found else WorkItem(name, STILL, STILL, STILL), times)]
        rows += found
    return rows


def _computing(row: WorkItem, times: ModuleTimes) -> WorkItem:
    ahead, back = times.forward(row.name), times.input_gradient(row.name)
    forward = Phase(ahead, row.forward.comm, row.forward.size)
    gradient = Phase(back, row.input_gradient.comm, row.input_gradient.size)
    return WorkItem(row.name, forward, gradient, Phase(ahead, NONE, 0))


def _runs(events: Iterable[Event]) -> _Run:
    """Neighbouring events of one module together; norms belong to nobody, for they send nothing."""
    named = ((_module(event), event) for event in events)
    known = (each for each in named if not each[0].endswith("norm"))
    seen: Counter[str] = Counter()
    found: _Run = {}
    for name, group in groupby(known, key=itemgetter(0)):
        found[name, seen[name]] = [event for _, event in group if isinstance(event, Call)]
        seen[name] += 1
    return found


def _module(event: Event) -> str:
    """The module's name in its layer; the experts of a rank are one module."""
    path = event.module if isinstance(event, Call) else event.parameters[0].rpartition(".")[0]
    if not path:
        return LOSS
    found = split_module(path)
    name = path if found is None or not found[0] else found[2].removeprefix(".")
    return EMBEDDING if name.startswith("embedding.") else name.partition(".local_experts.")[0]
