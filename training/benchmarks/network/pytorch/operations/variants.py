"""Makes the case's collective on a team, in one of the variants in which the case measures it."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import torch

from training.benchmarks.driver.workload import operands
from training.benchmarks.driver.workload.team import Team
from training.benchmarks.driver.workload.usage import UnusableSettingsError
from training.benchmarks.network.pytorch.choices import REDUCING
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.pytorch.operations import collectives
from training.benchmarks.network.pytorch.operations.collectives import Collective


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """The form, the root's place in the team, and the milliseconds of compute directly before (None: a barrier).

    `is_backwards`: the second half of the team sends to the first.
    """

    in_place: bool
    root: int = 0
    after_compute_ms: float | None = None
    is_backwards: bool = False


def variants(config: Config, world_size: int) -> tuple[Variant, ...]:
    """The variants that are measured at each size, in this order."""
    return tuple(
        Variant(in_place=in_place, root=root, after_compute_ms=compute, is_backwards=is_backwards)
        for is_backwards, root, compute, in_place in product(
            config.orders, config.roots_of(world_size), (None, *config.after_compute_ms), config.forms
        )
    )


def created(config: Config, team: Team, variant: Variant | None = None) -> Collective:
    """The case's collective on `team`, in the first of its variants unless given."""
    chosen = variant or variants(config, team.size)[0]
    return collectives.create(
        config.collective,
        team.backwards() if chosen.is_backwards else team,
        getattr(torch, config.dtype),
        config.seed,
        in_place=chosen.in_place,
        op=config.op,
        root=chosen.root,
    )


def refuse_unsupported(config: Config, backend: str, ranks: Iterable[int]) -> None:
    """Check that the case's type can be reduced by its op over the backend, in groups of so many `ranks`.

    Raises:
        UnusableSettingsError: it cannot, or no result would be exact.
    """
    if config.collective not in REDUCING:
        return
    dtype = getattr(torch, config.dtype)
    found = [reason for each in sorted({*ranks}) if (reason := operands.refusal(config.op, dtype, each))]
    if backend == "gloo" and config.dtype.startswith("float8"):
        found = [f"dtype = {config.dtype!r}: gloo cannot add 8-bit floating point; it can move it, as by all_gather"]
    elif backend == "gloo" and config.op == "avg" and not config.dtype.startswith(("float", "bfloat")):
        found = [f"op = 'avg': gloo takes no mean of integers, here {config.dtype}"]
    if found:
        raise UnusableSettingsError(found[0])
