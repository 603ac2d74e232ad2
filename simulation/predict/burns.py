"""Takes a machine's factors from a burn of products: a run of the device tests (`base`) that kept them busy."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median

from common.errors import input_problem
from common.summary import counted
from simulation.predict import kernels
from simulation.predict.machine import Machine, machine_of, other_part
from workloads.compute.base_runs import SquareProducts, products

LASTS_S = 2.0
"""Seconds of products from which on they run at sustained clocks: power is limited within tenths of one."""


def burned(known: Mapping[str, Machine], folder: Path) -> dict[str, Machine]:
    """The machines on which a run kept products busy, by GPU, with factors and power limit; none: it is another run.

    Raises:
        InputProblems: the folder is no run's, its products ended too soon, or ran on a device without tables.
    """
    found = list(products(folder, "--calibrate"))
    burns: dict[str, list[SquareProducts]] = defaultdict(list)
    for each in found:
        if each.seconds >= LASTS_S:
            machine = machine_of(each.device)
            if machine is None or other_part(each.device):
                allowed = f"its products ran on {each.device}; there are tables of {', '.join(known)}"
                raise input_problem("--calibrate", folder, allowed)
            burns[machine.gpu].append(each)
    if found and not burns:
        longest = max(each.seconds for each in found)
        wanted = f"take matmul_sustained, or more iterations: clocks settle in {LASTS_S:g} s"
        raise input_problem("--calibrate", folder, f"its products ended after {longest:.2g} s; {wanted}")
    return {gpu: _with_burns(known[gpu], its) for gpu, its in burns.items()}


def _with_burns(machine: Machine, burns: Iterable[SquareProducts]) -> Machine:
    """The machine with a factor for each type that ran: the median over rounds and tests."""
    by_type: dict[str, list[float]] = defaultdict(list)
    watts = machine.power_W
    for each in burns:
        if (kernels.PRODUCT, machine.gpu, each.dtype) in kernels.grids():
            by_type[each.dtype].append(factor(machine, each))
            watts = min(watts, each.watts or watts)
    factors = machine.factors
    said = {
        dtype: f"the median of {counted(len(its), 'burn')} of products, at {watts:g} W"
        for dtype, its in by_type.items()
    }
    measured = {dtype: median(its) for dtype, its in by_type.items()}
    new = replace(factors, products={**factors.products, **measured}, source={**factors.source, **said})
    return replace(machine, power_W=watts, factors=new)


def factor(machine: Machine, burn: SquareProducts) -> float:
    """How many times longer than in the tables products of a training take, by the slowest rank of a burn.

    A training's products slow down more than squares that follow one another. Where a burn of the shipped factor's
    machine is known, it says what the factor is of this one: as many times the shipped one as its burn takes longer.
    """
    table_ns = 1e3 * kernels.product_us(machine.gpu, burn.dtype, burn.side, burn.side, burn.side)
    slower = max(burn.ns) / table_ns
    usual = machine.factors.burns.get(burn.dtype)
    return slower if usual is None else machine.factors.products[burn.dtype] * slower / usual
