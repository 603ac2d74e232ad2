"""Holds the order of predicted layouts against measured ones, of one model on one cluster, and writes a table of it.

`python -m tests.docs` writes docs/data/simulation/ranked.csv; a test compares it.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from typing import NamedTuple

from simulation.predict.report import measured_ms
from tests.simulation.predict.accuracy import OWN, ROOT, held, torchtitan

TABLE = ROOT / "docs" / "data" / "simulation" / "ranked.csv"
APART = 1.1
"""How many times faster a layout is measured than another that it is surely better than: repeats differ by less."""


class Measured(NamedTuple):
    """A layout: tokens a second and GPU, measured (the best of its rows) and predicted."""

    measured: float
    predicted: float


class Group(NamedTuple):
    """The layouts of a model on a cluster, the measured best first."""

    source: str
    cluster: str
    model: str
    layouts: list[Measured]

    @property
    def place(self) -> int:
        """The place of the measured best among the predicted ones, from 1."""
        return sum(each.predicted > self.layouts[0].predicted for each in self.layouts) + 1

    @property
    def lost(self) -> float:
        """In %, how much slower than the measured best the predicted best was measured."""
        chosen = max(self.layouts, key=lambda each: each.predicted)
        return 100 * (1 - chosen.measured / self.layouts[0].measured)

    @property
    def ordered(self) -> tuple[int, int]:
        """Pairs of layouts that are APART, and those of them that are predicted in that order."""
        apart = [pair for pair in combinations(self.layouts, 2) if pair[0].measured > APART * pair[1].measured]
        return len(apart), sum(better.predicted > worse.predicted for better, worse in apart)


def groups() -> list[Group]:
    """All groups of the measured rows with two layouts and more, whose batch and precision count as theirs."""
    found: dict[tuple[object, ...], dict[tuple[object, ...], Measured]] = defaultdict(dict)
    names: dict[tuple[object, ...], str] = {}
    sources = {"SimuMax": held("simumax.csv"), "Megatron-Bridge": held("bridge.csv"), "torchtitan": torchtitan()}
    for source, rows in (sources | {source: held(name) for name, source in OWN.items()}).items():
        for row, prediction in rows:
            its = prediction.job
            model = (its.hidden, its.ffn, its.layers, its.heads, its.kv_heads, its.vocab, its.experts, its.topk)
            group = (source, f"{its.gpus} {its.gpu}", *model, its.moe_ffn, its.seq)
            layout = (
                its.precision, its.scaling, its.compiled, its.tp, its.pp, its.vpp, its.cp, its.ep, its.fsdp, its.mbs,
                its.micro_batches, its.recompute,
            )  # fmt: skip
            rate = its.tokens_per_iteration / its.gpus / measured_ms(row, its) * 1e3
            of_layout = Measured(rate, prediction.tokens_per_second_and_gpu)
            found[group][layout] = max(found[group].get(layout, of_layout), of_layout)
            name = row["name"].split("/")[2] if "/" in row["name"] else row["name"].split("_tp")[0].split("_fsdp")[0]
            names.setdefault(group, f"{name.split(' bf16')[0]}, {its.seq} tokens")
    return [
        Group(str(group[0]), str(group[1]), names[group], sorted(its.values(), reverse=True))
        for group, its in found.items()
        if len(its) > 1
    ]


def text() -> str:
    """The table."""
    lines = ["measured by,GPUs,model,layouts,place of the measured best,the predicted best is slower by,pairs in order"]
    for each in groups():
        apart, right = each.ordered
        lines.append(
            f'{each.source},{each.cluster},"{each.model}",{len(each.layouts)},{each.place},{each.lost:.1f} %,'
            f"{right} of {apart}"
        )
    return "\n".join([*lines, ""])
