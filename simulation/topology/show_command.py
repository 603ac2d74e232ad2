"""Shows what a topology file describes: `python -m simulation topology show FILE`."""

import argparse
from pathlib import Path
from typing import NamedTuple

from common.summary import JsonValue, Summary, counted
from common.units import format_bandwidth
from simulation.topology import bisection, distance, plausibility, structure
from simulation.topology.bisection import Bisection
from simulation.topology.fabric import Fabric, names, tiers
from simulation.topology.reading import ReadTopology, read
from simulation.topology.recognise import recognise
from simulation.topology.structure import Oversubscription, SpeedClass


class TopologyReport(NamedTuple):
    """All that is said about a file. `diameter` is in links between two GPUs; `apart` pairs do not reach each other."""

    fabric: Fabric
    template: bool
    servers: list[list[int]]
    rails: int
    segments: int
    speeds: list[SpeedClass]
    tiers: list[Oversubscription]
    bisection: Bisection
    diameter: int | None
    apart: int | None
    parts: list[int]
    oddities: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file."""
    parser.add_argument("file", type=Path, help="a topology in SimAI's format")


def run(arguments: argparse.Namespace) -> Summary:
    """Read the file and describe it.

    Raises:
        InputProblems: the file is not there, or has not the form.
    """
    found = examine(read(arguments.file), arguments.file)
    return Summary(as_text(arguments.file, found), as_data(arguments.file, found))


def examine(read_file: ReadTopology, path: Path) -> TopologyReport:
    """The report on a network."""
    fabric = read_file.fabric
    shape = recognise(fabric, path)
    of_servers = structure.servers(fabric)
    tier = tiers(fabric)
    whole_segments = shape is not None and not shape.segment_gpus % shape.gpus_per_server
    if shape is not None and whole_segments:
        rails, segments = shape.rails, shape.segments
    else:
        rails, segments = structure.rails_and_segments(fabric, of_servers)
    by_tier = structure.oversubscription(fabric, tier)
    exact = bisection.of_template(shape) if shape is not None and shape.gpus > 1 else None
    of_template = distance.diameter_of_template(shape) if shape is not None else None
    far = distance.farthest(fabric) if of_template is None else (of_template, 0)
    odd = plausibility.find(fabric, tier, names(fabric, tier), of_servers, by_tier, template=shape is not None)
    return TopologyReport(
        fabric=fabric,
        template=shape is not None,
        servers=of_servers,
        rails=rails,
        segments=segments,
        speeds=structure.links_by_speed(fabric, tier),
        tiers=by_tier,
        bisection=bisection.of_any(fabric, of_servers) if exact is None else exact,
        diameter=far and far[0],
        apart=far and far[1],
        parts=distance.parts(fabric),
        oddities=[*read_file.oddities, *odd],
    )


def as_data(path: Path, found: TopologyReport) -> dict[str, JsonValue]:
    """For --json; bandwidths are in bits per second."""
    fabric = found.fabric
    return {
        "file": str(path),
        "gpu_type": fabric.gpu_type,
        "template": found.template,
        "nodes": {"gpus": fabric.gpus, "nvswitches": fabric.nvswitches, "switches": fabric.switches},
        "servers": len(found.servers),
        "rails": found.rails,
        "segments": found.segments,
        "links": [{"between": each.between, **each.text._asdict(), "count": each.links} for each in found.speeds],
        "oversubscription": [each._asdict() for each in found.tiers],
        "bisection_bps": found.bisection.bits_per_second,
        "bisection_method": found.bisection.method,
        "diameter": found.diameter,
        "gpu_pairs_apart": found.apart,
        "parts": found.parts[:100],
        "disconnected_parts": len(found.parts) - 1,
        "oddities": found.oddities,
    }


def as_text(path: Path, found: TopologyReport) -> str:
    """For people."""
    fabric = found.fabric
    tier_nodes = ", ".join(f"{each.switches} {each.tier}" for each in found.tiers) or "no tiers"
    lines = [
        f"{path}: {'a template of SimAI or NVL' if found.template else 'no template'}, GPU type {fabric.gpu_type}",
        f"nodes         {counted(fabric.gpus, 'GPU')} in {counted(len(found.servers), 'server')}, "
        f"{counted(fabric.nvswitches, 'NVSwitch', 'NVSwitches')}, "
        f"{counted(fabric.switches, 'switch', 'switches')} ({tier_nodes})",
        f"structure     {counted(found.rails, 'rail')}, {counted(found.segments, 'segment')}",
    ]
    for number, each in enumerate(found.speeds):
        head = "links" if not number else ""
        rate = f", error rate {each.text.error_rate}" if float(each.text.error_rate) else ""
        lines.append(f"{head:<13} {each.links} {each.between}, {each.text.bandwidth}, {each.text.latency}{rate}")
    for number, of_tier in enumerate(found.tiers):
        lines.append(f"{'' if number else 'oversubscribed':<13} {_ratio(of_tier)}")
    bits = found.bisection.bits_per_second
    value = f"{format_bandwidth(bits)}, " if bits is not None else ""
    lines.append(f"bisection     {value}{found.bisection.method}")
    hops = (
        f"not computed above {distance.MOST_GPUS} GPUs" if found.diameter is None else counted(found.diameter, "link")
    )
    lines.append(f"diameter      {hops}")
    apart = f"{len(found.parts)} parts, of {', '.join(map(str, found.parts[:5]))} nodes" if found.parts[1:] else "yes"
    lines.append(f"connected     {apart}")
    if found.apart:
        pairs = counted(found.apart, "pair")
        pxn = "" if found.parts[1:] else "; with PXN their blocks go over NVLink first"
        lines.append(f"out of reach  {pairs} of GPUs: GPUs do not forward{pxn}")
    lines += [f"odd           {each}" for each in found.oddities]
    return "\n".join(lines)


def _ratio(tier: Oversubscription) -> str:
    if tier.least is None or tier.most is None:
        return f"{tier.tier}: the top"
    if tier.most - tier.least < 1e-9 * tier.most:
        return f"{tier.tier}: {tier.most:.4g} : 1"
    return f"{tier.tier}: {tier.least:.4g} to {tier.most:.4g} : 1"
