"""What the controller derives of a run from its logs, also where rank 0 says something else of it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from protocol.perflog import Event
from protocol.rank_states import NodeRanks
from run_benchmarks.results.derivation import derive
from run_benchmarks.results.rank_logs import read_rank_log


def contradictions(folder: Path, model: str, ranks: int, **lies: Any) -> list[str]:
    """The sentences on a run of one host that left its files in `folder`; lies: what FINISHED says instead."""
    logs = {rank: read_rank_log(folder, rank, with_steps=rank == 0) for rank in range(ranks)}
    said = logs[0].value(Event.SUBMIT_INFO) or {}
    finished = logs[0].latest[Event.FINISHED]
    assert isinstance(finished.value, dict)
    logs[0].latest[Event.FINISHED] = finished.model_copy(update={"value": {**finished.value, **lies}})
    case = SimpleNamespace(name="ONE", model=model, framework="pytorch", config=said["config"], nnodes=1, nproc=ranks)
    found = derive(case, logs, is_whole=True, launchers=[NodeRanks.found(folder)])
    assert found.unchecked == ()
    return [*found.contradictions]


def unnoticed(folder: Path, model: str, ranks: int) -> list[str]:
    """The numbers of FINISHED that may be told twice as large, or half as large, without a contradiction."""
    finished = read_rank_log(folder, 0).value(Event.FINISHED) or {}
    numbers = {name: value for name, value in finished.items() if type(value) in (int, float) and value}
    return [
        name
        for name, value in numbers.items()
        if not contradictions(folder, model, ranks, **{name: 2 * value})
        or not contradictions(folder, model, ranks, **{name: value / 2})
    ]
