"""Makes a what-if of a topology file: `python -m simulation topology edit FILE`."""

import argparse
import hashlib
import sys
from pathlib import Path

from common.command_line import new_path
from common.errors import MistakeList
from common.summary import Summary, counted
from common.whole_files import refuse_stdout, whole_files
from simulation.topology import distance, whatif
from simulation.topology.fabric import Fabric, chunks
from simulation.topology.reading import read


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the file and the edits."""
    parser.add_argument("file", type=Path, help="a topology in SimAI's format; it stays as it is")
    links = "links by names in either order, * and ? as in file names; may be given several times"
    parser.add_argument("--degrade", action="append", default=[], metavar="LINKS:FACTOR", help=f"slow down {links}")
    parser.add_argument("--cut", action="append", default=[], metavar="LINKS", help=f"remove {links}")
    parser.add_argument(
        "--slow-gpu", action="append", default=[], metavar="GPU:FACTOR", help="the share of its speed that is left"
    )
    parser.add_argument("--output", type=new_path, metavar="FILE", help="the new file (default: FILE-whatif)")


def run(arguments: argparse.Namespace) -> Summary:
    """Write the changed network, and beside it a sidecar with what was changed.

    Raises:
        InputProblems: mistakes in the edits or in the file, or a file is there with other content.
    """
    mistakes = MistakeList()
    edits = whatif.parse(arguments.degrade, arguments.cut, arguments.slow_gpu, mistakes)
    if not any(edits):
        mistakes.add("topology edit", None, "nothing to change: give --degrade, --cut or --slow-gpu")
    refuse_stdout(arguments.output, "the sidecar stands beside it", mistakes)
    found = mistakes.result(lambda: read(arguments.file))
    changed = found and whatif.apply(found.fabric, edits, mistakes)
    mistakes.check()
    slow = whatif.slow_gpus_of(arguments.file)
    for gpu, factor in edits.slow_gpus.items():
        slow[gpu] = slow.get(gpu, 1.0) * factor
    path: Path = arguments.output or arguments.file.with_name(f"{arguments.file.name}-whatif")
    content = b"".join(chunks(changed.fabric))
    beside = whatif.sidecar(arguments.file, edits, changed, hashlib.sha256(content).hexdigest(), slow)
    paths = [path, whatif.sidecar_of(path)]
    with whole_files(paths) as files:
        for file, data in zip(files, (content, beside), strict=True):
            file.write(data)
    warnings = [*found.oddities, *_parted(found.fabric, changed.fabric)]
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    said = (
        f"{path}: {counted(len(changed.degraded), 'link')} degraded, {len(changed.cut)} cut; "
        f"{paths[1].name}: {counted(len(slow), 'slow GPU')}"
    )
    return Summary(
        said,
        {
            "file": str(path), "sidecar": str(paths[1]), "degraded_links": len(changed.degraded),
            "cut_links": len(changed.cut), "slow_gpus": {str(gpu): factor for gpu, factor in sorted(slow.items())},
            "warnings": warnings,
        },
    )  # fmt: skip


def _parted(before: Fabric, after: Fabric) -> list[str]:
    was, now = len(distance.parts(before)), len(distance.parts(after))
    return [f"the network falls into {now} parts, before there were {was}"] if now > was else []
