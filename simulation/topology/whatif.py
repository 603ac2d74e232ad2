"""Changes a network as a fault would: slower links, cut links, slow GPUs; the latter stand in a file beside it."""

import fnmatch
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common.errors import MistakeList, input_problem
from common.progress import watched
from common.reading import sha256_of
from simulation.topology import options
from simulation.topology.fabric import Fabric, empty, names, tiers
from simulation.topology.shape import LinkText

FORMAT = "clusterdyno-whatif 1"
SUFFIX = ".whatif.json"
FACTOR_FORM = "a number above 0 and at most 1"
_NUMBER = re.compile(r"[\d.]+(?:[eE][+-]?\d+)?")


class Edits(NamedTuple):
    """The changes to make: patterns of links with the share of bandwidth that is left, patterns of links that are gone,
    and GPUs with the share of their speed that is left."""

    degrade: list[tuple[str, float]]
    cut: list[str]
    slow_gpus: dict[int, float]


class EditedTopology(NamedTuple):
    """The changed network, the links that were degraded (with the factor) and cut, as pairs of node ids."""

    fabric: Fabric
    degraded: list[tuple[int, int, float]]
    cut: list[tuple[int, int]]


def parse(degrade: Sequence[str], cut: Sequence[str], slow_gpu: Sequence[str], mistakes: MistakeList) -> Edits:
    """Read `leaf3-*:0.5`, `gpu7-leaf*` and `12:0.8`, and note mistakes; factors are shares of the full speed."""
    slow: dict[int, float] = {}
    for text in slow_gpu:
        number, factor = _factor("--slow-gpu", text, mistakes)
        gpu = number.removeprefix("gpu")
        if not (gpu.isascii() and gpu.isdecimal()):
            mistakes.add("--slow-gpu", text, "must be a GPU and the share of its speed that is left, such as 12:0.8")
        else:
            slow[int(gpu)] = slow.get(int(gpu), 1.0) * factor
    return Edits([_factor("--degrade", text, mistakes) for text in degrade], list(cut), slow)


def _factor(flag: str, text: str, mistakes: MistakeList) -> tuple[str, float]:
    """The part before the last colon, and the number after it as a share of the full speed."""
    pattern, _, number = text.rpartition(":")
    try:
        factor = float(number)
    except ValueError:
        factor = 0.0
    if not pattern or not 0 < factor <= 1:
        form = "'leaf3-*:0.5'" if flag == "--degrade" else "12:0.8"
        mistakes.add(flag, text, f"must end in a colon and {FACTOR_FORM}, such as {form}")
        return pattern, 1.0
    return pattern, factor


def apply(fabric: Fabric, edits: Edits, mistakes: MistakeList) -> EditedTopology:
    """The network with the edits; a pattern that matches no link and a GPU that is not there are mistakes.

    A pattern matches a link's two names in either order. Factors of several patterns multiply; a cut wins.
    """
    named = names(fabric, tiers(fabric))
    degrade = [(re.compile(fnmatch.translate(pattern)), factor) for pattern, factor in edits.degrade]
    cut = [re.compile(fnmatch.translate(pattern)) for pattern in edits.cut]
    used = [0] * (len(degrade) + len(cut))
    changed = EditedTopology(empty(fabric.gpus_per_server, fabric.gpu_type, fabric.roles), [], [])
    kinds: dict[LinkText, int] = {}
    for a, b, kind in watched("links edited", len(fabric.kinds), fabric.links()):
        words = f"{named[a]}-{named[b]}", f"{named[b]}-{named[a]}"
        hits = [any(map(pattern.match, words)) for pattern in cut]
        gone, factor = any(hits), 1.0
        for number, (pattern, share) in enumerate(degrade):
            if any(map(pattern.match, words)):
                used[number] += 1
                factor *= share
        for number, hit in enumerate(hits):
            used[len(degrade) + number] += hit
        if gone:
            changed.cut.append((a, b))
            continue
        text = fabric.texts[kind]
        if factor < 1:
            changed.degraded.append((a, b, factor))
            text = text._replace(bandwidth=scaled(text.bandwidth, factor))
            if text not in kinds:
                options.check("--degrade", text.bandwidth, options.link_bandwidth, mistakes)
        changed.fabric.first.append(a)
        changed.fabric.second.append(b)
        changed.fabric.kinds.append(kinds.setdefault(text, len(kinds)))
    changed.fabric.texts.extend(kinds)
    _check_use(edits, used, named, mistakes)
    gpus = fabric.gpus
    for gpu in edits.slow_gpus:
        if gpu >= gpus:
            mistakes.add("--slow-gpu", gpu, f"must be a GPU from 0 to {gpus - 1}")
    return changed


def _check_use(edits: Edits, used: Sequence[int], named: Sequence[str], mistakes: MistakeList) -> None:
    kinds = dict.fromkeys(name.rstrip("0123456789") for name in named)
    known = ", ".join(f"{kind}0" for kind in kinds)
    flags = [("--degrade", pattern) for pattern, _ in edits.degrade] + [("--cut", pattern) for pattern in edits.cut]
    for (flag, pattern), count in zip(flags, used, strict=True):
        if not count:
            mistakes.add(flag, pattern, f"matches no link; a link is called gpu7-leaf3, nodes are {known} and so on")


def scaled(bandwidth: str, factor: float) -> str:
    """`200Gbps` for `400Gbps` and 0.5 (a share of the bandwidth)."""
    match = _NUMBER.match(bandwidth)
    number = match[0] if match else ""
    return f"{float(number) * factor:.12g}{bandwidth[len(number) :]}"


def sidecar_of(path: Path) -> Path:
    """Where the sidecar of a topology file stands."""
    return path.with_name(f"{path.name}{SUFFIX}")


def sidecar(base: Path, edits: Edits, changed: EditedTopology, sha256: str, slow_gpus: Mapping[int, float]) -> bytes:
    """The sidecar's content: the changed file's sha256, what was asked, and what it meant for links and GPUs.

    Args:
        slow_gpus: the share of its speed that each slow GPU has left, those of the base included.
    """
    data = {
        "format": FORMAT,
        "base": base.name,
        "topology_sha256": sha256,
        "edits": {
            "degrade": [{"pattern": pattern, "factor": factor} for pattern, factor in edits.degrade],
            "cut": edits.cut,
        },
        "slow_gpus": {str(gpu): factor for gpu, factor in sorted(slow_gpus.items())},
        "degraded_links": changed.degraded,
        "cut_links": changed.cut,
    }
    return f"{json.dumps(data, indent=1)}\n".encode()


def slow_gpus_of(path: Path) -> dict[int, float]:
    """The share of its speed that each slow GPU of a topology file has left; empty without a sidecar.

    Raises:
        InputProblems: the sidecar has not the form, or belongs to another content of the file.
    """
    beside = sidecar_of(path)
    if not beside.exists():
        return {}
    try:
        data: dict[str, Any] = json.loads(beside.read_bytes())
        found = {int(gpu): float(factor) for gpu, factor in data["slow_gpus"].items()}
        if data["format"] != FORMAT or not all(0 < factor <= 1 for factor in found.values()):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise input_problem(str(beside), None, f"must be JSON of the format `{FORMAT}`") from None
    if data.get("topology_sha256") != sha256_of(path):
        raise input_problem(
            str(beside), None, f"belongs to another content of {path.name}: make both again, or remove it"
        )
    return found
