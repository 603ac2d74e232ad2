"""Takes a machine's factors from a burn of products: a run of the device tests (`base`) that kept them busy."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

from common.errors import MistakeList, input_problem
from common.summary import counted
from simulation.predict import kernels
from simulation.predict.machine import Machine, machine_of, other_part
from workloads.compute.base_runs import SquareProducts, products

LASTS_S = 2.0
"""Seconds of products from which on they run at sustained clocks: power is limited within tenths of one."""
SIDE = 8192
"""Of the squares of `Factors.burns`."""


def burned(known: Mapping[str, Machine], folder: Path, wanted: Collection[tuple[str, str]] = ()) -> dict[str, Machine]:
    """The machines on which a run kept products busy, by GPU, with factors and power limit; none: it is another run.

    wanted: GPUs and precisions of the jobs, each of which needs its burn.

    Raises:
        InputProblems: the folder is no run's, its products ended too soon, ran on a device without tables, or are of
            another size, type or GPU than what is wanted.
    """
    burns: dict[str, dict[str, list[SquareProducts]]] = defaultdict(lambda: defaultdict(list))
    unfit: dict[str, None] = {}
    for each in _lasting(folder):
        machine = machine_of(each.device)
        if machine is None or other_part(each.device):
            allowed = f"its products ran on {each.device}; there are tables of {', '.join(known)}"
            raise input_problem("--calibrate", folder, allowed)
        if (kernels.PRODUCT, machine.gpu, each.dtype) not in kernels.grids():
            unfit[f"there is no table of products in {each.dtype} on {machine.gpu}"] = None
        elif each.side != SIDE:
            unfit[f"its products are squares of {each.side}, factors are of matmul_size = {SIDE}"] = None
        else:
            burns[machine.gpu][each.dtype].append(each)
    if unfit and not burns:
        raise input_problem("--calibrate", folder, "; ".join(unfit))
    if wanted and burns:
        _check_fit(burns, folder, wanted)
    return {gpu: _with_burns(known[gpu], its) for gpu, its in burns.items()}


def _lasting(folder: Path) -> list[SquareProducts]:
    found = list(products(folder, "--calibrate"))
    lasting = [each for each in found if each.seconds >= LASTS_S]
    if found and not lasting:
        longest = max(each.seconds for each in found)
        hint = f"take matmul_sustained, or more iterations: clocks settle in {LASTS_S:g} s"
        raise input_problem("--calibrate", folder, f"its products ended after {longest:.2g} s; {hint}")
    return lasting


def _check_fit(burns: Mapping[str, Iterable[str]], folder: Path, wanted: Collection[tuple[str, str]]) -> None:
    """That no job would have another's factor, as if it were measured."""
    mistakes = MistakeList()
    for gpu, precision in sorted(set(wanted)):
        if gpu not in burns:
            mistakes.add("--calibrate", folder, f"its products ran on {', '.join(burns)}, not {gpu}")
        elif precision not in burns[gpu]:
            mistakes.add("--calibrate", folder, f"its products are of {', '.join(burns[gpu])}, not {precision}")
    mistakes.check()


def _with_burns(machine: Machine, burns: Mapping[str, Sequence[SquareProducts]]) -> Machine:
    """The machine with a factor for each type that ran: the median over rounds and tests.

    It has the lowest power limit of the burns; types that did not run are scaled to it.
    """
    told = [each.watts for its in burns.values() for each in its if each.watts]
    limit = f", at {min(told):g} W" if told else ""
    limited = machine.limited(min(told, default=0.0), 0)
    measured = {dtype: median(factor(machine, each) for each in its) for dtype, its in burns.items()}
    said = {dtype: f"the median of {counted(len(its), 'burn')} of products{limit}" for dtype, its in burns.items()}
    factors = limited.factors
    new = replace(factors, products={**factors.products, **measured}, source={**factors.source, **said})
    return replace(limited, factors=new)


def factor(machine: Machine, burn: SquareProducts) -> float:
    """How many times longer than in the tables products of a training take, by the slowest rank of a burn.

    Without a shipped burn of the type it is the burn's time over the table's. That is too short: products of a training
    slow down more than squares in a row. With one, it is the shipped factor times the burn's time over the shipped
    burn's (`Factors.burns`).
    """
    table_ns = 1e3 * kernels.product_us(machine.gpu, burn.dtype, burn.side, burn.side, burn.side)
    slower = max(burn.ns) / table_ns
    usual = machine.factors.burns.get(burn.dtype)
    return slower if usual is None else machine.factors.products[burn.dtype] * slower / usual
