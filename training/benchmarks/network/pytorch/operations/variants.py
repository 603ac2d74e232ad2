"""Makes the case's collective on a team, in one of the variants in which the case measures it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import torch

from training.benchmarks.driver.workload.team import Team
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


def unsupported(config: Config, backend: str) -> str | None:
    """The reason why the backend cannot reduce the case's type by its op, in words; None if it can."""
    if backend != "gloo" or config.collective not in ("all_reduce", "reduce", "reduce_scatter"):
        return None
    if config.dtype.startswith("float8"):
        return f"dtype = {config.dtype!r}: gloo cannot add 8-bit floating point; it can move it, as by all_gather"
    if config.op == "avg" and not config.dtype.startswith(("float", "bfloat")):
        return f"op = 'avg': gloo takes no mean of integers, here {config.dtype}"
    return None
