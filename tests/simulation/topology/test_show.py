"""`topology show`: what it finds is compared with slow, independent computations on small networks."""

import json
import tracemalloc
from itertools import combinations
from pathlib import Path

import networkx
import pytest

from common.units import bandwidth_bps
from simulation import cli
from simulation.topology import bisection, distance, reading, structure
from simulation.topology.fabric import names, tiers
from simulation.topology.reading import ReadTopology, read
from simulation.topology.show_command import recognise
from tests.tiers import samples

SMALL = [
    "-topo Spectrum-X -g 16 -gps 4 -npa 2 -psn 3 -app 64",
    "-topo Spectrum-X -g 24 -gps 4 -npa 2 -psn 1 -bw 400Gbps -apbw 100Gbps",
    "-topo Spectrum-X -g 20 -gps 4 -npa 2 -psn 2 -apbw 200Gbps",
    "-topo AlibabaHPN -g 12 -gps 2 -npa 2 -psn 3",
    "-topo AlibabaHPN --dp -g 12 -gps 2 -npa 2 -psn 3 -apbw 100Gbps",
    "-topo AlibabaHPN --dp -g 10 -gps 2 -npa 2 -psn 2 -apbw 50Gbps",
    "-topo DCN+ -g 12 -gps 2 -npa 4 -psn 1 -apbw 300Gbps",
    "-topo DCN+ --dt -g 14 -gps 2 -npa 4 -psn 2 -apbw 150Gbps",
    "-topo Spectrum-X -g 8 -psn 4",
    "-topo Spectrum-X -g 8 -psn 1 -apbw 100Gbps",
    "-topo DCN+ -g 6 -gps 6 -npa 4 -psn 1 -apbw 300Gbps",
    "--ro --dt -g 8 -gps 4 -npa 1 -psn 2 -nsps 2",
    "-g 2 -gps 1 -npa 1 -psn 1",
    "-g 4 -gps 2 -npa 8 -psn 2",
]
RANDOM = [
    f"{kind} -g {servers * per_server} -gps {per_server} -npa {npa * per_server} -psn {spines} -apbw {up}Gbps -app 640"
    for number, kind in enumerate(["--ro", "--ro --dt", "--ro --dt --dp", "", "--dt"] * len(samples(1, 6)))
    for servers, per_server, npa, spines, up in [(2 + number % 6, 1 + number % 3, 1 + number % 2, 2 + number % 3, 70)]
]


def made(folder: Path, words: str) -> tuple[Path, ReadTopology]:
    path = folder / "made"
    assert cli.main(["topology", *words.split(), "--output", str(path), "--force"]) == 0
    return path, read(path)


def graph_of(found: ReadTopology) -> networkx.Graph:
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(found.fabric.roles)))
    for a, b, kind in found.fabric.links():
        graph.add_edge(a, b, capacity=bandwidth_bps(found.fabric.texts[kind].bandwidth))
    return graph


def least_of_all_halves(found: ReadTopology) -> float:
    """The min-cut over every division of the servers (of the GPUs of a single one) into halves."""
    servers = structure.servers(found.fabric)
    units = [[gpu] for gpu in servers[0]] if len(servers) == 1 else servers
    least = float("inf")
    for chosen in combinations(range(len(units)), len(units) // 2):
        graph = graph_of(found)
        for number, unit in enumerate(units):
            for gpu in unit:
                graph.add_edge("s" if number in chosen else "t", gpu, capacity=1e18)
        least = min(least, networkx.minimum_cut_value(graph, "s", "t"))
    return least


@pytest.mark.parametrize("words", [*SMALL, *RANDOM])
def test_bisection_and_diameter_of_a_template_are_those_of_a_search(tmp_path: Path, words: str) -> None:
    path, found = made(tmp_path, words)
    shape = recognise(found.fabric, path)
    assert shape is not None
    exact = bisection.of_template(shape)
    assert exact is not None and exact.bits_per_second is not None
    assert exact.bits_per_second == pytest.approx(least_of_all_halves(found))
    if not shape.segment_gpus % shape.gpus_per_server:
        found_structure = structure.rails_and_segments(found.fabric, structure.servers(found.fabric))
        assert found_structure == (shape.rails, shape.segments)
    if shape.segments == 1 and shape.servers > 1:
        half_empty = shape._replace(nics_per_leaf=4 * shape.nics_per_leaf)
        assert bisection.of_template(half_empty) == exact, "free ports of the leaves change nothing"
    lengths = dict(networkx.all_pairs_shortest_path_length(graph_of(found)))
    hops = max(lengths[a][b] for a in range(shape.gpus) for b in range(shape.gpus))
    assert distance.diameter_of_template(shape) in (hops, None) and distance.farthest(found.fabric) == (hops, 0)
    of_any = bisection.of_any(found.fabric, structure.servers(found.fabric))
    assert of_any.bits_per_second is not None and of_any.bits_per_second >= exact.bits_per_second * 0.999999


def test_without_spines_gpus_of_other_rails_are_out_of_reach(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two servers of four on four leaves: 16 pairs are in other servers, four of which share a rail."""
    path = tmp_path / "rails"
    links = [f"{gpu} {8 + gpu // 4} 900Gbps 1us 0" for gpu in range(8)]
    links += [f"{gpu} {10 + gpu % 4} 400Gbps 1us 0" for gpu in range(8)]
    path.write_text("\n".join(["14 4 2 4 16 H100", "8 9 10 11 12 13", *links]) + "\n", encoding="utf-8")
    assert cli.main(["topology", "show", str(path)]) == 0
    said = capsys.readouterr().out
    assert "diameter      2 links" in said and "out of reach  12 pairs of GPUs" in said


@pytest.mark.parametrize("leaves", [(0, 0, 1, 1), (0, 1, 0, 1)])
def test_the_least_of_a_network_that_is_no_template_is_found_between_either_halves(
    tmp_path: Path, leaves: tuple[int, ...]
) -> None:
    """Four servers of one GPU on two leaves, in order or in turn; the spine between the leaves is the narrow place."""
    path = tmp_path / "any"
    links = "".join(f"{gpu} {4 + leaf} 100Gbps 1us 0\n" for gpu, leaf in enumerate(leaves))
    path.write_text(f"7 1 0 3 6 H100\n4 5 6 \n{links}4 6 30Gbps 1us 0\n5 6 30Gbps 1us 0\n", encoding="utf-8")
    found = read(path)
    of_any = bisection.of_any(found.fabric, structure.servers(found.fabric))
    assert of_any.bits_per_second == pytest.approx(least_of_all_halves(found)) == pytest.approx(30e9)


def test_a_changed_line_is_no_template(tmp_path: Path) -> None:
    path, found = made(tmp_path, "-topo Spectrum-X -g 16 -psn 2")
    assert recognise(found.fabric, path)
    text = path.read_text(encoding="utf-8")
    for other in (text.replace("0 16 2880Gbps", "0 16 2881Gbps"), text + "0 17 400Gbps 0.0005ms 0\n"):
        path.write_text(other, encoding="utf-8")
        assert recognise(read(path).fabric, path) is None


def test_what_is_said_about_the_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, _ = made(tmp_path, "-topo Spectrum-X -g 128 -gt A100 -bw 100Gbps -nvbw 2400Gbps")
    capsys.readouterr()
    assert cli.main(["topology", "show", str(path)]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [
        "nodes         128 GPUs in 16 servers, 16 NVSwitches, 72 switches (8 leaf, 64 spine)",
        "structure     8 rails, 1 segment",
        "links         128 gpu-nvswitch, 2400Gbps, 0.000025ms",
        "              128 gpu-leaf, 100Gbps, 0.0005ms",
        "              512 leaf-spine, 400Gbps, 0.0005ms",
        "oversubscribed leaf: 0.0625 : 1",
        "              spine: the top",
        "bisection     6.4Tbps, exact, over all divisions of the servers into halves",
        "diameter      4 links",
        "connected     yes",
    ]
    assert cli.main(["topology", "show", str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["rails"], data["segments"], data["servers"], data["disconnected_parts"]) == (8, 1, 16, 0)
    assert data["bisection_bps"] == 6.4e12 and data["template"] is True and data["oddities"] == []


@pytest.mark.parametrize(
    ("words", "rails", "segments", "of_leaves"),
    [
        ("-topo Spectrum-X -g 520", 8, 2, 1 / 64),
        ("-topo AlibabaHPN -g 64 -npa 4", 8, 2, 1 / 60),
        ("-topo DCN+ -g 256 -psn 4", 1, 4, 16),
        ("-topo NVL -g 576", 4, 2, 1),
    ],
)
def test_rails_segments_and_oversubscription(
    tmp_path: Path, words: str, rails: int, segments: int, of_leaves: float
) -> None:
    _, found = made(tmp_path, words)
    assert structure.rails_and_segments(found.fabric, structure.servers(found.fabric)) == (rails, segments)
    by_tier = structure.oversubscription(found.fabric, tiers(found.fabric))
    assert by_tier[0].least == pytest.approx(of_leaves) and by_tier[1].most is None


def test_a_cut_link_makes_no_segment_of_its_own(tmp_path: Path) -> None:
    path, _ = made(tmp_path, "-topo AlibabaHPN -g 64 -npa 4")
    assert cli.main(["topology", "edit", str(path), "--cut", "gpu7-leaf*", "--output", str(tmp_path / "cut")]) == 0
    fabric = read(tmp_path / "cut").fabric
    assert structure.rails_and_segments(fabric, structure.servers(fabric)) == (8, 2)


# Two servers of two and one GPUs, without a spine; the third GPU hangs on a leaf of its own.
BROKEN = """\
9 2 2 4 7 h100
3 4 5 6 7 8
0 3 100Gbps 0.001ms 0
1 3 100Gbps 0.001ms 0
2 4 100Gbps 0.001ms 0
0 5 400Gbps 2ms 0
0 5 400Gbps 2ms 0
2 6 400Gbps 0.0005ms 0.01
"""


def test_blanks_and_line_ends_make_no_other_links(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(
        b"4 2 1 1 4 H100\r\n2 3 \r\n0 2 1Gbps 1us 0\n1 2 1Gbps  1us 0 \n\n0 3 1Gbps 1us 0\r\n1 3 1Gbps 1us 0"
    )
    found = read(path)
    assert [str(text) for text in found.fabric.texts] == ["1Gbps 1us 0"] and len(found.fabric.kinds) == 4
    assert not found.oddities


def test_what_is_odd_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken"
    path.write_text(BROKEN, encoding="utf-8")
    assert cli.main(["topology", "show", str(path)]) == 0
    said = capsys.readouterr().out
    assert "connected     4 parts, of 4, 3, 1 and 1 more nodes" in said
    assert [line.removeprefix("odd           ") for line in said.splitlines() if line.startswith("odd ")] == [
        "the header promises 7 links, the file has 6",
        "the GPU type h100 is not one of A100, A800, H20, H100, H200, H800, B200, B300, GB200, GB300",
        "no link at all: switch0, switch1 (switch)",
        "no link to a leaf: gpu1",
        "the header says 2 GPUs per server, the NVSwitches join 1 server of 1, 1 server of 2",
        "more than one line for a link: gpu0-leaf0 2 times",
        "2 GPUs have less bandwidth to the NVSwitches than to the leaves",
        "links `400Gbps 2ms 0` have a latency of a millisecond or more, as 200 km of fibre",
        "links `400Gbps 0.0005ms 0.01` lose packets: some simulators take much longer, or hang",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["topology", "show"],
        ["topology", "draw"],
        ["topology", "edit", "--degrade", "gpu0-*:0.5"],
        ["flows", "--op", "AllReduce", "--size", "1M", "-n"],
        ["network", "--op", "AllReduce", "--size", "1M", "--level", "flow", "-n"],
        ["analytical", "-w", "job.txt", "-n"],
        ["predict", "--model", "llama3_8b", "--gpu", "H100", "--gpus", "5", "--gbs", "5", "-n"],
    ],
)
def test_every_verb_that_reads_a_network_tells_once_of_links_as_long_as_between_cities(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mostly a mistake of the unit; of many kinds of links three are named."""
    monkeypatch.chdir(tmp_path)
    for name, unit in (("long", "ms"), ("short", "us")):
        links = "".join(f"{gpu} 5 400Gbps {gpu + 1}{unit} 0\n" for gpu in range(5))
        Path(name).write_text(f"6 1 0 1 5 H100\n5\n{links}", encoding="utf-8")
        cli.main([*words, name] if "edit" not in words else [*words[:2], name, *words[2:]])
        out, error = capsys.readouterr()
        sentence = "links `400Gbps 1ms 0`, `400Gbps 2ms 0`, `400Gbps 3ms 0` and 2 more kinds have a latency of a milli"
        told = f"odd           {sentence}" in out if "show" in words else f"note: {name}: {sentence}" in error
        assert told == (unit == "ms") == (out + error).count("latency of a millisecond")


def test_names_and_tiers_of_three_levels(tmp_path: Path) -> None:
    path = tmp_path / "three"
    path.write_text("7 1 0 5 6 H100\n2 3 4 5 6 \n" + "".join(
        f"{a} {b} 100Gbps 1us 0\n" for a, b in ((0, 2), (3, 1), (2, 4), (3, 5), (4, 6), (5, 6))
    ), encoding="utf-8")  # fmt: skip
    fabric = read(path).fabric
    assert names(fabric, tiers(fabric)) == ["gpu0", "gpu1", "leaf0", "leaf1", "spine0", "spine1", "core0"]
    assert distance.farthest(fabric) == (6, 0)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "line 1 '': must be nodes, GPUs per server"),
        ("1000000000000 8 1 0 8 H100\n8\n", "line 1 1000000000000 nodes: must be at most 16777216"),
        ("9 8 1 0 8\n", "line 1 '9 8 1 0 8': must be nodes, GPUs per server"),
        ("1 8 1 0 8 H100\n0 \n", "line 1 1 nodes: must be more than the switches"),
        ("9 8 1 0 8 H100\n8 9\n", "line 2 names 2: must name the 1 switches of line 1"),
        ("9 8 1 0 8 H100\n12\n", "line 2: must be ids from 0 to 8"),
        ("9 8 1 0 8 H100\nx\n", "line 2: must be the ids of the switches"),
        ("2 1 1 0 1 H100\n1 \n0 2 1Gbps 1ms 0\n", "line 3 '0 2 1Gbps 1ms 0': must be two different ids from 0 to 1"),
        ("2 1 1 0 1 H100\n1 \n0 0 1Gbps 1ms 0\n", "line 3 '0 0 1Gbps 1ms 0': must be two different ids from 0 to 1"),
        ("2 1 1 0 1 H100\n1 \n0 1 fast 1ms 0\n", "line 3 '0 1 fast 1ms 0': must be a positive number with a unit"),
        ("2 1 1 0 1 H100\n1 \n0 1 1Gbps 1ms\n", "line 3 '0 1 1Gbps 1ms': must be two ids, bandwidth, latency"),
        ("2 1 1 0 1 H100\n1 \n0 1 1Gbps 5000s 0\n", "line 3 '0 1 1Gbps 5000s 0': must be a latency of at most 1s"),
        ("2 1 1 0 1 H100\n1 \n0 1 1Gbps 1ms 7\n", "must be a number from 0 to below 1"),
        ("\xff", "has bytes that are no text"),
    ],
)
def test_a_file_of_another_form_is_refused(
    tmp_path: Path, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_bytes(text.encode("latin-1"))
    assert cli.main(["topology", "show", str(path)]) == 2
    error = capsys.readouterr().err
    assert said in error and str(path) in error and error.count("\n") == 1


def test_many_mistakes_end_at_twenty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("2 1 1 0 1 H100\n1 \n" + "what\n" * 100, encoding="utf-8")
    assert cli.main(["topology", "show", str(tmp_path / "file")]) == 2
    *told, last = capsys.readouterr().err.splitlines()
    assert len(told) == 20 and "line 22: is as far as the file was read" in last
    assert cli.main(["topology", "show", str(tmp_path / "none")]) == 2
    assert "No such file" in capsys.readouterr().err


def test_a_line_and_the_kinds_of_links_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of holes is one line; each other text of a link takes memory."""
    holes = tmp_path / "holes"
    tracemalloc.start()
    try:
        for head in (b"", b"2 1 1 0 1 H100\n", b"2 1 1 0 1 H100\n1 \n"):
            holes.write_bytes(head)
            with holes.open("ab") as file:
                file.truncate(len(head) + (16 << 20 if head.count(b"\n") < 2 else 1 << 14))
            assert cli.main(["topology", "show", str(holes)]) == 2
            assert f"{holes}, line " in capsys.readouterr().err
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    monkeypatch.setattr(reading, "MOST_KINDS", 100)
    lines = [f"0 1 {number}Gbps 1ms 0\n" for number in range(1, 102)]
    (tmp_path / "kinds").write_text("2 1 1 0 101 H100\n1 \n" + "".join(lines))
    assert cli.main(["topology", "show", str(tmp_path / "kinds")]) == 2
    assert "line 103" in (said := capsys.readouterr().err) and "at most 100 kinds are read" in said
    (tmp_path / "kinds").write_text("2 1 1 0 200 H100\n1 \n" + "".join(2 * lines[:100]))
    assert len(read(tmp_path / "kinds").fabric.texts) == 100


def test_large_networks_that_are_no_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, found = made(tmp_path, "-topo Spectrum-X -g 64 -npa 4")
    whole = distance.farthest(found.fabric)
    monkeypatch.setattr(distance, "AT_ONCE", 7)
    assert distance.farthest(found.fabric) == whole == (4, 0)
    monkeypatch.setattr(distance, "MOST_GPUS", 63)
    assert distance.farthest(found.fabric) is None
    monkeypatch.setattr(bisection, "MOST_GPUS", 63)
    assert bisection.of_any(found.fabric, structure.servers(found.fabric)).bits_per_second is None
