"""Sums up the rows of a network case for FINISHED; the controller derives FINISHED again by it. Needs no torch."""

import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from common.bandwidth import host_gbps
from training.benchmarks.network.patterns.topology import Topology
from training.benchmarks.network.pytorch.choices import PARTS, SWEEPS
from training.benchmarks.network.pytorch.config import Config
from training.benchmarks.network.reporting import answers
from training.benchmarks.network.slow_parts.analysis import Analysis, analyse_scan
from training.benchmarks.network.slow_parts.comparison import PeerComparison
from training.benchmarks.network.slow_parts.findings import told
from training.benchmarks.network.slow_parts.packing import bandwidths, decode, host_names, unpacked
from training.benchmarks.network.slow_parts.readings import scan_of
from training.benchmarks.network.slow_parts.search_rows import check_version, repeats_of, search_figures, searched_again


def rows_of(value: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per group of a STEP_END's value, each with its place in the pattern; packed ones, too."""
    place = {name: value[name] for name in ("pattern", "repeat", "round") if name in value}
    if "packed" in value:
        yield from (place | row for row in unpacked(value, host_names(value)))
    elif "groups" in value:
        yield from (place | dict(group) for group in value["groups"])
    else:
        yield dict(value)


def worst(verdicts: list[str]) -> str:
    """fail if any failed, else the first; not_checked for none."""
    return "fail" if "fail" in verdicts else next(iter(verdicts), "not_checked")


class _Summed(NamedTuple):
    """Of rows of one size, ranks and operation: the fastest, the sum of busbw in GB/s, how many, how many wrong."""

    fastest: Mapping[str, Any]
    busbw: float
    rows: int
    wrong: int


def _summed(step: Mapping[str, Any]) -> Iterator[_Summed]:
    """The rows of a step that count in figures: of a packed one all at once, for a scan has millions."""
    if "packed" in step:
        busbw = bandwidths(step["packed"])
        codes = decode(step["packed"]["p50"])  # of a barrier, which moves nothing, they alone tell the fastest
        fastest = next(unpacked(step, {}, [codes.index(min(codes))]))
        yield _Summed(fastest, sum(busbw), len(busbw), len(step.get("wrong", ())))
        return
    for row in rows_of(step):
        if "after_compute_ms" not in row:
            yield _Summed(row, row["busbw_GBps"], 1, row.get("correct") == "fail")


def summary(steps: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[int]]:
    """The value of FINISHED for all measurements, and the sizes in bytes whose data was wrong."""
    best: Mapping[str, Any] = {}
    total, count, algbw, least = 0.0, 0, 0.0, math.inf
    wrong: list[int] = []
    for own in (each for step in steps for each in _summed(step)):
        row = own.fastest
        best = row if not best or row["busbw_GBps"] > best["busbw_GBps"] else best
        total, count = total + own.busbw, count + own.rows
        algbw, least = max(algbw, row["algbw_GBps"]), min(least, row["time_us"]["p50"])
        wrong += [row["size_bytes"]] * own.wrong
    return {
        "correct": worst([str(step["correct"]) for step in steps]),
        "max_busbw_GBps": best["busbw_GBps"],
        "peak_size_bytes": best["size_bytes"],
        "avg_busbw_GBps": total / count,
        "max_algbw_GBps": algbw,
        "min_p50_us": least,
    }, wrong


def host_rate(collective: str, row: Mapping[str, Any]) -> float:
    """GB/s that leave the busiest host of a measurement in one direction; of one host its bus bandwidth."""
    return host_gbps(collective, float(row["busbw_GBps"]), int(row["world_size"]), len(row["hosts"]))


def rates(config: Config, nnodes: int, steps: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """Figures and sentences about the best rate of a sweep: against what is expected, the original and training."""
    figures: dict[str, Any] = {}
    sentences: list[str] = []
    found = (own.fastest for step in answers.between_hosts(steps) for own in _summed(step))
    best = max(host_rate(config.collective, row) for row in found)
    if config.expected_link is not None:
        figures["measured_over_expected"], sentence = answers.expectation(
            best, config.expected_link, config.expected_links
        )
        sentences.append(sentence)
    elif config.tool == "all_reduce_bench":
        sentences.append(
            f"measured {best:.4g} GB/s busbw; expected_link is not set: no advertised speed to compare with"
        )
    theirs = [float(step["original_timing"]["busbw_GBps"]) for step in steps if "original_timing" in step]
    if theirs:
        figures["original_max_busbw_GBps"] = max(theirs)
        sentences.append(f"as the original takes it, the best busbw is {max(theirs):.4g} GB/s")
    if config.collective == "all_reduce" and config.pattern == "all":
        verdict, sentence = answers.training_at_scale(best, nnodes)
        if verdict is not None:
            figures["zero3_at_scale"] = verdict
        if verdict is not None or config.tool == "all_reduce_bench":
            sentences.append(sentence)
    return figures, sentences


def derived(
    config: Config, nnodes: int, steps: Sequence[Mapping[str, Any]], started: Mapping[str, Any]
) -> dict[str, Any]:
    """The values of FINISHED that follow from the rows of a case's steps, and what TRAIN_START says of the hosts.

    Raises:
        ValueError, KeyError: the rows are none that this case makes.
    """
    return summary(steps)[0] | answered(config, nnodes, steps)[0] | _compared(config, steps, started)


def answered(
    config: Config,
    nnodes: int,
    steps: Sequence[Mapping[str, Any]],
    backend: str = "",
    changes: Mapping[str, Sequence[Sequence[float]]] = MappingProxyType({}),
) -> tuple[dict[str, Any], list[str]]:
    """Figures of FINISHED that answer the question of the case's tool, and sentences, from rank 0's steps.

    `changes`: those of a soak's levels, see `answers.soak`.
    """
    if config.tool in SWEEPS:
        return rates(config, nnodes, steps)
    if config.tool == "overlap":
        return answers.overlaps(steps)
    if config.tool == "congestion":
        return answers.congestion(steps)
    if config.tool == "soak":
        return answers.soak(steps, changes)
    if config.tool == "all_reduce_latency_comp":
        ratio, sentence = answers.one_against_many(steps, PARTS)
        return {"many_over_one": ratio}, [sentence]
    ratio, sentence = answers.object_against_tensor(steps, backend)
    return {"object_over_tensor": ratio}, [sentence]


def compared(analysis: Analysis) -> dict[str, Any]:
    """The figures of FINISHED that compare a pattern's groups."""
    bisection = {} if analysis.bisection_gbps is None else {"bisection_GBps": analysis.bisection_gbps}
    findings = told(analysis.findings) | {"remarks": list(analysis.remarks)}
    return {"noise_percent": analysis.noise_percent, **findings, **bisection}


def _compared(config: Config, steps: Sequence[Mapping[str, Any]], started: Mapping[str, Any]) -> dict[str, Any]:
    """The findings that the rows show, and their figures; nothing where all ranks measured together."""
    if config.pattern == "all":
        return {}
    around = Topology.of_json(started["around"])
    if config.pattern == "adaptive":
        check_version(started)
        names, comparison = started["hosts"], PeerComparison(config.bounds)
        repeats = repeats_of(config.repeats)
        result, ground, sizes = searched_again(steps, len(names), around, comparison, config.search, repeats)
        return search_figures(result, ground, names, sizes)
    found = analyse_scan(scan_of(steps), config.bounds, around)
    return {} if found is None else compared(found)
