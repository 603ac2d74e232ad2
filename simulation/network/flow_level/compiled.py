"""Moves flows by compiled code: numba compiles `fluid.py` once, and what came of it is loaded without numba."""

import ctypes
import sys
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias

from simulation.network.flow_level.fluid_state import Fluid, Whole
from simulation.network.machine_code import emitted, file_of, kept, kept_or_made, loaded

SOURCES = "compiled", "fluid", "fluid_state"
NAME = "simulation.network.flow_level.fluid"
ENTRY = "move_flows"  # the name of the compiled function, which issues hops where there are some, else runs
_REAL = {
    "hop_size", "hop_gap", "release_gap", "hop_late", "load_cost", "wait_byte", "lane_delay", "lane_half", "lane_alone",
    "lane_turns", "lane_phase", "lane_slowest", "lane_most", "start", "end", "left", "rate", "room", "weight", "data",
    "event_time", "part_until", "clock",
}  # fmt: skip
Code: TypeAlias = Callable[..., int]
_KINDS = ["d" if name in _REAL else "q" for name in Fluid._fields]


class CompiledFluid:
    """The functions of `fluid` for one state, whose columns are arrays."""

    def __init__(self, state: Fluid, code: Code) -> None:
        self._code, self._columns = code, state
        self._addresses = (ctypes.c_void_p * len(state))(*(column.buffer_info()[0] for column in state))
        self._sizes = (ctypes.c_int64 * len(state))(*map(len, state))

    def run(self, _state: Fluid, until: float, most: int) -> int:
        """As `fluid.run`; `until` is in ns."""
        return self._code(self._addresses, self._addresses, self._sizes, None, 0, until, most)

    def issue(self, _state: Fluid, hops: Whole, gap: float) -> None:
        """As `fluid.issue`; `hops` are an array, `gap` is in ns."""
        self._code(self._addresses, self._addresses, self._sizes, hops.buffer_info()[0], len(hops), gap, 0)


def filled(value: Any, count: int) -> "array[Any]":
    """A column of one value, of shape (count,)."""
    return array("d" if isinstance(value, float) else "q", [value]) * count


def whole(values: Sequence[int]) -> "array[int]":
    """Whole numbers as compiled code takes them, shape (values,)."""
    return array("q", values)


def in_arrays(state: Fluid) -> Fluid:
    """The same state, its lists as arrays."""
    return Fluid._make(
        array(kind, each) if isinstance(each, list) else each for kind, each in zip(_KINDS, state, strict=True)
    )


@cache
def compiled() -> Code:
    """The code, compiled now if it was not before.

    Raises:
        ImportError: it has to be compiled, and there is no numba.
    """
    file = _file()
    code = kept_or_made(file, lambda: _compile(file))
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    kind = ctypes.CFUNCTYPE(number, pointer, pointer, pointer, pointer, number, ctypes.c_double, number)
    return kind(loaded(code, ENTRY))


def is_compiled() -> bool:
    """Whether the code was compiled before."""
    return kept(_file()) is not None


def _file() -> Path | None:
    return file_of(Path(__file__).parent, SOURCES, ENTRY)


def _compile(file: Path | None) -> bytes:
    """The machine code of `run` and `issue`. It raises nothing: with numpy's errors a division by 0 is infinite."""
    import numba
    from numba import types

    where = f"once, into {file.parent}" if file else "for this run"
    print(f"compiling the flow level {where} (about half a minute)", file=sys.stderr)
    spec = find_spec(NAME)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, function in vars(module).copy().items():
        if isinstance(function, FunctionType):
            # Without counts of references (_nrt), which took half of the time: compiled code makes no array.
            setattr(module, name, numba.njit(forceinline=True, error_model="numpy", _nrt=False)(function))
    columns = [f"carray({'reals' if kind == 'd' else 'wholes'}[{at}], sizes[{at}])" for at, kind in enumerate(_KINDS)]
    names = {"carray": numba.carray, "Fluid": Fluid, "run": module.run, "issue": module.issue}
    exec(  # numba makes no tuple of columns of two kinds in a loop
        f"def {ENTRY}(wholes, reals, sizes, hops, count, time, most):\n"
        f"    state = Fluid({', '.join(columns)})\n"
        "    if count:\n"
        "        issue(state, carray(hops, count), time)\n"
        "        return 0\n"
        "    return run(state, time, most)\n",
        names,
    )
    whole_column, real_column = types.CPointer(types.int64), types.CPointer(types.float64)
    kinds = types.CPointer(whole_column), types.CPointer(real_column), whole_column, whole_column
    signature = types.int64(*kinds, types.int64, types.float64, types.int64)
    made = numba.cfunc(signature, error_model="numpy")(names[ENTRY])
    return emitted(made.inspect_llvm(), made.native_name, ENTRY)
