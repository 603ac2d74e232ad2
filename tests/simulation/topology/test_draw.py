"""`topology draw`: well-formed SVG that has every GPU, every link's colour and nothing outside its frame."""

import re
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest

from simulation import cli

DATA = Path(__file__).resolve().parents[2] / "data" / "simulation" / "topo"
SVG = "{http://www.w3.org/2000/svg}"


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def call(*words: str) -> int:
    return cli.main(["topology", *words])


def drawn(file: str) -> ElementTree.Element:
    assert call("draw", file, "--force") == 0
    return ElementTree.parse(f"{file}.svg").getroot()


def texts(picture: ElementTree.Element) -> list[str]:
    return [each.text or "" for each in picture.iter(f"{SVG}text")]


@pytest.mark.parametrize(
    ("words", "lines", "labels"),
    [
        ("-topo Spectrum-X -g 128", 128 + 128 + 8, {"64 spines", "leaf 7", "NVSwitch 15", "127", "server 15"}),
        ("-topo AlibabaHPN --dp -g 16 -psn 5", 16 + 32 + 16, {"3 spines", "2 spines"}),
        ("-topo NVL", 72 + 72 + 4, {"18 NVSwitches", "72 spines", "leaf 3", "71"}),
        ("-g 8 -nsps 4 -psn 1", 8 + 8 + 1, {"4 NVSwitches", "spine 0"}),
    ],
)
def test_every_node_is_drawn_inside_the_frame(words: str, lines: int, labels: set[str]) -> None:
    assert call(*words.split(), "--output", "base") == 0
    picture = drawn("base")
    assert len([*picture.iter(f"{SVG}line")]) == lines, "links of equal switches are one line"
    assert labels <= {*texts(picture)}
    width, height = float(picture.get("width", 0)), float(picture.get("height", 0))
    for each in picture.iter():
        for key, limit in (("x", width), ("y", height), ("x1", width), ("x2", width), ("y1", height), ("y2", height)):
            assert 0 <= float(each.get(key, 0)) <= limit
    boxes = [each for each in picture.iter(f"{SVG}rect") if each.get("width") == "19"]
    places = sorted((float(each.get("x", 0)), float(each.get("y", 0))) for each in boxes)
    assert all(other[0] - one[0] >= 19 for one, other in pairwise(places)), "GPUs overlap"


def test_faults_are_red() -> None:
    assert call("-topo", "Spectrum-X", "-g", "16", "-psn", "2", "--output", "base") == 0
    assert call("edit", "base", "--degrade", "leaf3-gpu*:0.5", "--slow-gpu", "12:0.8") == 0
    whole, faulty = drawn("base"), drawn("base-whatif")
    assert not [each for each in whole.iter(f"{SVG}line") if each.get("class") == "slow"]
    assert len([each for each in faulty.iter(f"{SVG}line") if each.get("class") == "slow"]) == 2
    assert "red frame: a slow GPU (12: 0.8)" in texts(faulty) and "red frame" not in " ".join(texts(whole))
    assert [each.text for each in faulty.iter(f"{SVG}title") if "speed" in (each.text or "")] == [
        "gpu12, 0.8 of its speed"
    ]
    framed = [each for each in faulty.iter(f"{SVG}rect") if each.get("stroke-width") == "2.5"]
    assert len(framed) == 1


def test_three_tiers_and_switches_without_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    Path("three").write_text(
        "9 1 0 7 6 H100\n2 3 4 5 6 7 8\n"
        + "".join(f"{a} {b} 100Gbps 1us 0\n" for a, b in ((0, 2), (1, 3), (2, 4), (3, 5), (4, 6), (5, 6))),
        encoding="utf-8",
    )
    assert {"core 0", "spine 0", "leaf 1", "2 switches", "s1"} <= {*texts(drawn("three"))}
    assert call("--from", str(DATA / "two_pods.yaml"), "--output", "pods") == 0
    assert call("draw", "pods") == 2
    assert "pods has 160 GPUs: at most 128 can be drawn" in capsys.readouterr().err
    assert not Path("pods.svg").exists()


def test_links_between_leaves_or_gpus_pass_over_what_stands_between_them() -> None:
    """A straight line from leaf 0 to leaf 2 would seem to be two, to leaf 1 and from it."""
    ends = (*((gpu, 3 + gpu) for gpu in range(3)), (3, 5), (0, 1), (0, 2))
    Path("flat").write_text(
        "6 1 0 3 6 H100\n3 4 5\n" + "".join(f"{a} {b} 100Gbps 1us 0\n" for a, b in ends), encoding="utf-8"
    )
    picture = drawn("flat")
    assert len([*picture.iter(f"{SVG}line")]) == 3, "from each GPU to its leaf"
    assert "1 link leaf-leaf: 100Gbps, 1us" in texts(picture)
    tops = [float(each.get("y", 0)) for each in picture.iter(f"{SVG}rect") if each.get("width") in ("19", "92.0")]
    arcs = [[float(each) for each in re.findall(r"[\d.]+", arc.get("d", ""))] for arc in picture.iter(f"{SVG}path")]
    assert len(arcs) == 3
    for x1, y1, middle, bend, x2, y2 in arcs:
        assert y1 == y2 and x1 != x2 and middle == pytest.approx((x1 + x2) / 2, abs=0.1)
        assert tops.count(y1) == 3, "arcs begin at the tops of the boxes"
        assert 0 < (bend + y1) / 2 < y1, "the arc is above the row, and inside the frame"


def test_a_gpu_without_links_stands_in_its_server() -> None:
    assert call("-topo", "Spectrum-X", "-g", "16", "-psn", "2", "--output", "base") == 0
    assert call("edit", "base", "--cut", "gpu3-*") == 0
    whole, cut = drawn("base"), drawn("base-whatif")
    labels = ([each for each in texts(picture)[1:] if "links " not in each] for picture in (whole, cut))
    assert next(labels) == next(labels)
    assert len([*whole.iter(f"{SVG}line")]) - len([*cut.iter(f"{SVG}line")]) == 2


@pytest.mark.parametrize("per_server", [1, 4])
def test_a_server_that_is_larger_than_the_file_says_is_drawn_whole(per_server: int) -> None:
    links = "".join(f"{gpu} {to} 100Gbps 1us 0\n" for gpu in range(8) for to in (8, 9))
    Path("odd").write_text(f"10 {per_server} 1 1 16 H100\n8 9\n{links}", encoding="utf-8")
    assert {*map(str, range(8))} <= {*texts(drawn("odd"))}


def test_a_name_cannot_break_the_picture() -> None:
    assert call("-g", "8", "--output", "a<b>&c") == 0
    assert texts(drawn("a<b>&c"))[0] == "a<b>&c"
