"""Compiles `fluid.py`: a second copy of the module whose functions numba has compiled, for states that hold arrays."""

import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec, module_from_spec
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulation.network.event_heap import CONFIG, cache_of, inlined, jit
from simulation.network.flow_level.fluid_state import Fluid

SOURCES = ("compiled", "fluid", "fluid_state", "../event_heap")
CALLED = ("run", "issue")
NAME = "simulation.network.flow_level.fluid"
_REAL = {
    "hop_size", "hop_gap", "release_gap", "load_cost", "wait_byte", "lane_delay", "lane_half", "lane_alone",
    "lane_turns", "lane_phase", "lane_slowest", "clock",
}  # fmt: skip


@cache
def compiled() -> ModuleType:
    """The module, each function of which is compiled when it is first called."""
    folder, former = cache_of(Path(__file__).parent, SOURCES), CONFIG.CACHE_DIR
    if not folder.exists():
        print(f"compiling the flow level once, into {folder} (about half a minute)", file=sys.stderr)
    spec = find_spec(NAME)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    CONFIG.CACHE_DIR = str(folder)
    for name, function in vars(module).copy().items():
        if isinstance(function, FunctionType):
            setattr(module, name, jit(function) if name in CALLED else inlined(function))
    CONFIG.CACHE_DIR = former
    return module


def filled(value: object, count: int) -> NDArray[np.number[Any]]:
    """A column of one value, of shape (count,); memory is taken only where zeros are overwritten."""
    kind = np.float64 if isinstance(value, float) else np.int64
    return np.full(count, value, kind) if value else np.zeros(count, kind)


def whole(values: Sequence[int]) -> NDArray[np.int64]:
    """Whole numbers as compiled code takes them, shape (values,)."""
    return np.asarray(values, np.int64)


def in_arrays(state: Fluid) -> Fluid:
    """The same state, its lists as arrays."""
    return Fluid._make(
        np.asarray(each, np.float64 if name in _REAL else np.int64) if isinstance(each, list) else each
        for name, each in zip(Fluid._fields, state, strict=True)
    )
