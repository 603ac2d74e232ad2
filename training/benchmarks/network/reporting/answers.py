"""Answers the questions of ml-engineering's network tools in words from measurements."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from common.units import format_size
from training.benchmarks.network.hosts.links import judge_share, link

# Gbit/s between hosts for training with ZeRO stage 3 on 64 GPUs and more, from ml-engineering's network/README:
# 100 is not enough, 200 to 400 is acceptable, 800 to 1000 is ideal. Highest first.
_SCALE = ((800, "ideal"), (200, "acceptable"), (100.001, "less than acceptable"), (0, "not enough"))
_CLAIM = 23
# Bins of a soak's histogram per power of two.
PER_OCTAVE = 8


def between_hosts(steps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The steps that measure links between hosts: of the pattern halves, only the groups across the cut.

    A half may be one host, whose NVLink or memory is faster than any link between hosts.
    """
    return [step for step in steps if step["pattern"] != "halves" or str(step["round"]).startswith("across")]


def expectation(busbw_gbps: float, expected_link: str | float, count: int) -> tuple[float, str]:
    """(measured / advertised, sentence) of the best busbw, in GB/s, against `count` links in one direction."""
    wanted = link(expected_link)
    advertised = wanted.gbps * count
    share = busbw_gbps / advertised
    name = f"{count} x {wanted.name}" if count > 1 else wanted.name
    source = wanted.source if wanted.verified else f"{wanted.source}; not verified"
    return share, (
        f"advertised {advertised:g} GB/s in one direction ({name}; {source}),"
        f" measured {busbw_gbps:.4g} GB/s: {100 * share:.0f} %: {judge_share(share)[1]}"
    )


def training_at_scale(busbw_gbps: float, nnodes: int) -> tuple[str | None, str]:
    """(verdict, sentence) for ZeRO-3 on 64 GPUs and more, from the best all_reduce busbw in GB/s.

    With one host the verdict is None: nothing was measured between hosts.

    Source: ml-engineering, network/README, for the bounds in Gbit/s.
    """
    if nnodes < 2:
        return None, "training at scale: 1 host was measured, which says nothing of the network between hosts"
    gbit = busbw_gbps * 8
    verdict = next(text for at_least, text in _SCALE if gbit >= at_least)
    return verdict, (
        f"training at scale (ZeRO-3, 64 GPUs and more): {gbit:.4g} Gbit/s busbw between {nnodes} hosts is {verdict}"
        " (100 is not enough, 200-400 is acceptable, 800-1000 is ideal)"
    )


def object_against_tensor(steps: Sequence[Mapping[str, Any]], backend: str) -> tuple[float, str]:
    """(dimensionless ratio, sentence): p50 of the first step, all_gather_object, over a tensor collective's."""
    slow, fast = (float(step["time_us"]["p50"]) for step in steps)
    ratio = slow / fast
    return ratio, (
        f"a flag by all_gather_object takes {slow:.0f} us, by {steps[1]['collective']} of a tensor {fast:.0f} us:"
        f" {ratio:.1f}x among {steps[0]['world_size']} ranks over {backend}, the answer read on the host both times"
        f" (the tool's claim for GPUs is {_CLAIM}x)"
    )


def one_against_many(steps: Sequence[Mapping[str, Any]], parts: int) -> tuple[float, str]:
    """(ratio, sentence): p50 of the second step, `parts` small messages, over the first's, one of all bytes."""
    whole, many = (float(step["time_us"]["p50"]) / 1e6 for step in steps)
    size = int(steps[0]["size_bytes"])
    total = f"{size / 1e9:.3g} GB" if size % (1 << 20) else format_size(size)
    return many / whole, (
        f"one all_reduce of {total} takes {whole:.4g} s, {parts} of {size / parts / 1e6:.3g} MB take {many:.4g} s:"
        f" {many / whole:.2f}x"
    )


def overlap(communication_us: float, compute_us: float, both_us: float) -> float:
    """The share of the shorter time, in microseconds each, that is hidden (dimensionless): 1 if it costs nothing."""
    return (communication_us + compute_us - both_us) / min(communication_us, compute_us)


def overlaps(steps: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """(figures for FINISHED, sentences) from the steps of rank 0."""
    found: dict[str, float] = {}
    sentences = []
    for alone, both in zip(steps[::2], steps[1::2], strict=True):
        times = [float(alone["time_us"]["p50"]), float(both["compute_us"]), float(both["time_us"]["p50"])]
        name = format_size(int(alone["size_bytes"]))
        found[name] = overlap(*times)
        sentences.append(
            f"{name}: all_reduce {times[0]:.4g} us, matrix products {times[1]:.4g} us, both at once {times[2]:.4g} us:"
            f" {100 * found[name]:.0f} % of the shorter one is hidden"
        )
    return {"overlap": found, "overlap_percent": 100 * [*found.values()][-1]}, sentences


def congestion(steps: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """(figures for FINISHED, sentences) from the steps of rank 0: times beside the aggressors / alone."""
    found: dict[str, dict[str, float]] = {}
    sentences = []
    for alone, beside in zip(steps[::2], steps[1::2], strict=True):
        name = format_size(int(alone["size_bytes"])) if alone["size_bytes"] else "barrier"
        found[name] = {key: float(beside["time_us"][key]) / float(alone["time_us"][key]) for key in ("p50", "p99")}
        sentences.append(
            f"{name}: {alone['time_us']['p50']:.4g} us alone (p99 {alone['time_us']['p99']:.4g}),"
            f" {beside['time_us']['p50']:.4g} us beside traffic (p99 {beside['time_us']['p99']:.4g}):"
            f" {found[name]['p50']:.2f} times, p99 {found[name]['p99']:.2f} times"
        )
    last = [*found.values()][-1]
    return {"congestion": found, "congestion_p50": last["p50"], "congestion_p99": last["p99"]}, sentences


def soaked(steps: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Adds up the reports of a soak for each size: iterations, quantiles and the longest time in microseconds, and the
    histogram, a pair [lower end in microseconds, iterations] for each bin that is not empty.
    """
    counts: dict[str, Counter[float]] = {}
    longest: dict[str, float] = {}
    for own in (step["soak"] for step in steps):
        new = {float(lower): int(count) for lower, count in own["histogram"]}
        counts.setdefault(own["size"], Counter()).update(new)
        longest[own["size"]] = float(own["max_us"])
    return {name: _summed(own, longest[name]) for name, own in counts.items()}


def soak(
    steps: Sequence[Mapping[str, Any]], changes: Mapping[str, Sequence[Sequence[float]]]
) -> tuple[dict[str, Any], list[str]]:
    """(figures for FINISHED, sentences) from the steps of rank 0; `changes` of the level by size, as far as they are
    known: seconds since the start, microseconds before and after.
    """
    found = soaked(steps)
    sentences = []
    for name, own in found.items():
        own |= {"changes": changes[name]} if name in changes else {}
        told = (f"at {at_s:.0f} s from {us:.4g} to {after_us:.4g} us" for at_s, us, after_us in changes.get(name, ()))
        sentences.append(
            f"{name}: {own['iterations']} iterations, p50 {own['p50_us']:.4g} us, p99 {own['p99_us']:.4g} us,"
            f" p99.9 {own['p999_us']:.4g} us, longest {own['max_us']:.4g} us;"
            f" {'; '.join(told) or 'its level did not change'}"
        )
    jitter = max(float(own["p99_us"]) / float(own["p50_us"]) for own in found.values())
    return {"soak": found, "jitter": jitter}, sentences


def _summed(counts: Counter[float], longest_us: float) -> dict[str, Any]:
    bins = sorted(counts.items())
    quantiles = {
        f"{name}_us": _quantile_us(bins, share, longest_us)
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p999", 0.999))
    }
    histogram = [[lower, count] for lower, count in bins]
    return {"iterations": counts.total(), **quantiles, "max_us": longest_us, "histogram": histogram}


def _quantile_us(bins: Sequence[tuple[float, int]], share: float, longest_us: float) -> float:
    """The time in microseconds that `share` (0 to 1) of the iterations do not exceed, rounded up to its bin's end."""
    least = max(1, math.ceil(share * sum(count for _, count in bins)))
    reached = accumulate(count for _, count in bins)
    lower_us = next(lower for (lower, _), done in zip(bins, reached, strict=True) if done >= least)
    place = round(math.log2(lower_us) * PER_OCTAVE)
    return min(math.exp2((place + 1) / PER_OCTAVE), longest_us)
