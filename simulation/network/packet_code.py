"""Calls the compiled functions of the packet level: numba compiles them once, and they are loaded without numba.

One function of machine code holds them all; `what` says which one runs.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from simulation.network import packet_state as state
from simulation.network.routing import Ints

# The modules that have compiled code, or whose constants and records it holds.
SOURCES = (
    "event_heap", "event_wheel", "hashing", "link_changes", "packet_code", "packet_loop", "packet_state", "paths",
    "port_queues", "rank_steps", "rates",
)  # fmt: skip
ENTRY = "move_packets"
_KINDS = {
    "ports": state.PORT, "nodes": state.NODE, "flows": state.FLOW, "packets": state.PACKET, "events": state.EVENT,
    "wheel": state.SLOT, "links": state.LINK, "totals": state.TOTALS, "ranks": state.RANK, "steps": state.STEP,
    "parts": state.PART, "filled": np.dtype(np.uint64), "path": np.dtype(np.int32), "back": np.dtype(np.int32),
}  # fmt: skip
_TABLES = {"parts", "queues", "taken", "path", "back", "usage", "route_begin", "route_count"}  # of two dimensions
_COLUMNS = *state.Simulation._fields[:-1], "down"  # the last field are the rules
_TYPES = [_KINDS.get(name, np.dtype(np.int64)) for name in _COLUMNS]
BEGIN_RANKS, RUN, FIND_PATHS, CHANGE_LINKS, PLAN_OUTAGE = range(5)
_BODY = f"""
    if what == {BEGIN_RANKS}:
        begin_ranks(state)
    elif what == {RUN}:
        return run(state, first)
    elif what == {FIND_PATHS}:
        find_all_paths(state)
    elif what == {CHANGE_LINKS}:
        change_links(state, down)
    else:
        plan(state, first, LINKS, second)
    return 0
"""
Code: TypeAlias = Callable[..., int]


def begin_ranks(sim: state.Simulation) -> None:
    """Let all ranks begin their steps at time 0."""
    _call(sim, BEGIN_RANKS)


def run(sim: state.Simulation, most: int) -> int:
    """Handle at most `most` events; returns how that ended, see `packet_loop.run`."""
    return _call(sim, RUN, most)


def find_all_paths(sim: state.Simulation) -> None:
    """Give all flows the paths that they get if those of a pair of GPUs start in the order of their numbers."""
    _call(sim, FIND_PATHS)


def change_links(sim: state.Simulation, down: Ints) -> None:
    """Take the ports down for which `down` is above 0, the others up; see `link_changes.change_links`."""
    _call(sim, CHANGE_LINKS, down=down)


def plan_outage(sim: state.Simulation, time: int, number: int) -> None:
    """Plan that links go down or come back; `time` is in ns."""
    _call(sim, PLAN_OUTAGE, time, number)


def _call(sim: state.Simulation, what: int, first: int = 0, second: int = 0, down: Ints | None = None) -> int:
    columns = [*sim[:-1], np.zeros(0, np.int64) if down is None else down]
    for name, kind, column in zip(_COLUMNS, _TYPES, columns, strict=True):
        if column.dtype != kind or column.ndim != 1 + (name in _TABLES) or not column.flags.c_contiguous:
            raise AssertionError(f"compiled code takes {name} as {kind} without gaps")
    sizes = np.array([(len(each), each.shape[-1]) for each in columns], np.int64)
    rules = np.array([float(each) for each in sim.rules])
    addresses = [each.ctypes.data for each in (*columns, sizes, rules)]
    return code()(*addresses, what, first, second)


@cache
def code() -> Code:
    """The code, compiled now if it was not before.

    Raises:
        ImportError: it has to be compiled, and there is no numba.
    """
    from simulation.network.machine_code import file_of, kept_or_made, loaded  # which needs llvmlite

    file = file_of(Path(__file__).parent, SOURCES, ENTRY)
    found = kept_or_made(file, lambda: _compile(file))
    pointers, numbers = [ctypes.c_void_p] * (len(_COLUMNS) + 2), [ctypes.c_int64] * 3
    return ctypes.CFUNCTYPE(ctypes.c_int64, *pointers, *numbers)(loaded(found, ENTRY))


def _compile(file: Path | None) -> bytes:
    """The machine code. It raises nothing: with numpy's errors a division by 0 is infinite."""
    import numba
    from numba import types

    from simulation.network import event_heap, link_changes, packet_loop
    from simulation.network.machine_code import emitted

    where = f"once, into {file.parent}" if file else "for this run"
    print(f"compiling the packet level {where} (about a minute)", file=sys.stderr)
    names: dict[str, Any] = {
        "carray": numba.carray, "Simulation": state.Simulation, "Rules": state.Rules, "LINKS": event_heap.LINKS,
        "plan": event_heap.plan, "run": packet_loop.run, "begin_ranks": packet_loop.begin_ranks,
        "find_all_paths": link_changes.find_all_paths, "change_links": link_changes.change_links,
    }  # fmt: skip
    arrays = [
        f"carray({name}, {f'(sizes[{2 * at}], sizes[{2 * at + 1}])' if name in _TABLES else f'sizes[{2 * at}]'})"
        for at, name in enumerate(_COLUMNS)
    ]
    kinds = {int: "int(rules[{}])", float: "rules[{}]", bool: "rules[{}] != 0"}
    rules = [kinds[kind].format(at) for at, kind in enumerate(state.Rules.__annotations__.values())]
    exec(
        f"def {ENTRY}({', '.join(_COLUMNS)}, sizes, rules, what, first, second):\n"
        f"    state = Simulation({', '.join(arrays[:-1])}, Rules({', '.join(rules)}))\n"
        f"    down = {arrays[-1]}" + _BODY,
        names,
    )
    whole = types.int64
    columns = [types.CPointer(numba.from_dtype(kind)) for kind in _TYPES]
    pointers = [*columns, types.CPointer(whole), types.CPointer(types.float64)]
    made = numba.cfunc(whole(*pointers, whole, whole, whole), error_model="numpy")(names[ENTRY])
    return emitted(made.inspect_llvm(), made.native_name, ENTRY)
