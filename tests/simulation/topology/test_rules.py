"""The fast writer gives what the rules of the format give link by link, for any parameters; and it is read back."""

import random

import pytest

from simulation.topology import fabric, text
from simulation.topology.reading import read
from simulation.topology.shape import FabricShape, LinkText
from simulation.topology.show_command import recognise
from tests.tiers import samples


def plainly(shape: FabricShape) -> str:
    """The file, a node and a link at a time."""
    leaves_of_set = -(-shape.gpus // (shape.nics_per_leaf * shape.rails)) * shape.rails
    nvswitches = shape.gpus // shape.gpus_per_server * shape.nvswitches_per_server
    first_leaf = shape.gpus + nvswitches
    first_spine = first_leaf + leaves_of_set * shape.tors
    last = first_spine + shape.spines
    lines = []
    for gpu in range(shape.gpus):
        for number in range(shape.nvswitches_per_server):
            nvswitch = shape.gpus + gpu // shape.gpus_per_server * shape.nvswitches_per_server + number
            lines.append(f"{gpu} {nvswitch} {shape.nvlink}")
        for tor in range(shape.tors):
            rail = gpu % shape.gpus_per_server % shape.rails
            leaf = gpu // (shape.nics_per_leaf * shape.rails) * shape.rails + rail
            lines.append(f"{gpu} {first_leaf + tor * leaves_of_set + leaf} {shape.nic}")
    for leaf in range(first_leaf, first_spine):
        for spine in range(first_spine, last):
            of_first_plane = spine - first_spine < (shape.spines + 1) // 2
            if shape.planes == 1 or of_first_plane == (leaf - first_leaf < leaves_of_set):
                lines.append(f"{leaf} {spine} {shape.uplink}")
    switches = "".join(f"{node} " for node in range(shape.gpus, last))
    head = f"{last} {shape.gpus_per_server} {nvswitches} {last - first_leaf} {len(lines)} {shape.gpu_type}"
    return "".join(f"{line}\n" for line in (head, switches, *lines))


def shapes(seed: int) -> FabricShape:
    """Some parameters, over the borders of what is written at once, too."""
    chance = random.Random(seed)
    rails = chance.choice([1, 1, 2, 4, 8])
    per_server = rails * chance.choice([1, 1, 2, 9])
    tors = chance.choice([1, 2])
    return FabricShape(
        gpus=per_server * chance.choice([1, 3, 10, 130, 700 // per_server + 1]),
        gpus_per_server=per_server,
        gpu_type=chance.choice(["H100", "A100"]),
        nvswitches_per_server=chance.choice([1, 1, 2, 5]),
        rails=rails,
        tors=tors,
        planes=chance.choice([1, tors]),
        nics_per_leaf=chance.choice([1, 2, 7, 64]),
        spines=chance.choice([1, 2, 5, 12]),
        nvlink=LinkText("2880Gbps", "0.000025ms", "0"),
        nic=LinkText("400Gbps", "0.0005ms", "0"),
        uplink=LinkText("800Gbps", "0.0005ms", "0.1"),
    )


@pytest.mark.parametrize("seed", samples(40, 1000))
def test_the_fast_writer_follows_the_rules(
    seed: int, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = shapes(seed)
    expected = plainly(shape)
    assert b"".join(text.chunks(shape)).decode() == expected
    monkeypatch.setattr(text, "GPUS_AT_ONCE", 16)
    monkeypatch.setattr(text, "LEAVES_AT_ONCE", 3)
    assert b"".join(text.chunks(shape)).decode() == expected
    assert shape.links == expected.count("\n") - 2 and expected.startswith(f"{shape.nodes} ")
    file = tmp_path_factory.mktemp("topology") / "file"
    file.write_text(expected, encoding="utf-8")
    found = read(file)
    assert not found.oddities and b"".join(fabric.chunks(found.fabric)).decode() == expected
    again = recognise(found.fabric, file)
    assert again is not None and b"".join(text.chunks(again)).decode() == expected
