"""Shows what a topology file describes: `python -m simulation topology show FILE`.

`recognise` finds the template that a file was made by, if it is exactly that template.
"""

import argparse
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from common.summary import JsonValue, Summary, counted
from common.units import format_bandwidth
from simulation.topology import bisection, distance, plausibility, structure, text
from simulation.topology.bisection import Bisection
from simulation.topology.fabric import GPU, NVSWITCH, Fabric, names, tiers
from simulation.topology.reading import ReadTopology, read
from simulation.topology.shape import FabricShape, LinkText
from simulation.topology.structure import Oversubscription, SpeedClass


def recognise(fabric: Fabric, path: Path) -> FabricShape | None:
    """The parameters whose template has the same bytes as the file, or None."""
    shape = _guess(fabric)
    if shape is None or (shape.nodes, shape.links) != (len(fabric.roles), len(fabric.kinds)):
        return None
    with path.open("rb") as file:
        for chunk in text.chunks(shape):
            if file.read(len(chunk)) != chunk:
                return None
        return None if file.read(1) else shape


def _guess(fabric: Fabric) -> FabricShape | None:
    """Parameters that the first GPUs' and leaves' links show."""
    gpus, per_server = fabric.gpus, fabric.gpus_per_server
    if not per_server or gpus % per_server or not fabric.kinds:
        return None
    nvlinks, nics = _of_first_gpu(fabric)
    if not nvlinks or len(nics) not in (1, 2):
        return None
    leaf = nics[0][0]
    on_leaf = [a for a, b, _ in fabric.links() if b == leaf]
    texts, planes = fabric.texts, _planes(fabric, [b for b, _ in nics])
    return FabricShape(
        gpus=gpus,
        gpus_per_server=per_server,
        gpu_type=fabric.gpu_type,
        nvswitches_per_server=len(nvlinks),
        rails=on_leaf[1] if len(on_leaf) > 1 else per_server,
        tors=len(nics),
        planes=planes,
        nics_per_leaf=len(on_leaf),
        spines=fabric.switches - _leaves(fabric),
        nvlink=texts[nvlinks[0][1]],
        nic=texts[nics[0][1]],
        uplink=_uplink(fabric, leaf),
    )


def _uplink(fabric: Fabric, leaf: int) -> LinkText:
    """That of the leaf's first link upwards; of a fabric without spines any."""
    kind = next((kind for a, _, kind in fabric.links() if a == leaf), None)
    return LinkText("1bps", "0s", "0") if kind is None else fabric.texts[kind]


def _of_first_gpu(fabric: Fabric) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """The NVLinks of the first GPU, and its other links: their ends and kinds, among the file's first links."""
    gpus, per_server, roles = fabric.gpus, fabric.gpus_per_server, fabric.roles
    links = islice(fabric.links(), gpus * 8 if gpus < per_server * 8 else per_server * 8)
    found = [(b, kind) for a, b, kind in links if a == 0 and roles[a] == GPU]
    nvlinks = [(b, kind) for b, kind in found if roles[b] == NVSWITCH]
    return nvlinks, [(b, kind) for b, kind in found if roles[b] != NVSWITCH]


def _leaves(fabric: Fabric) -> int:
    roles = fabric.roles
    return len({b for a, b, _ in fabric.links() if roles[a] == GPU and roles[b] not in (GPU, NVSWITCH)})


def _planes(fabric: Fabric, leaves: list[int]) -> int:
    """Two if the first leaf of each set reaches other spines."""
    reached = [{b for a, b, _ in fabric.links() if a == leaf} for leaf in leaves]
    return 2 if len(reached) == 2 and reached[0].isdisjoint(reached[1]) else 1


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
    found = examine(read(arguments.file, noting=False), arguments.file)
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
    parts = plausibility.some([*map(str, found.parts)])
    lines.append(f"connected     {f'{len(found.parts)} parts, of {parts} nodes' if found.parts[1:] else 'yes'}")
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
