"""Finds the template that a file was made by, if it is exactly that template."""

from itertools import islice
from pathlib import Path

from simulation.topology import text
from simulation.topology.fabric import GPU, NVSWITCH, Fabric
from simulation.topology.shape import FabricShape, LinkText


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
