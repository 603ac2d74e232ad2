"""`topology --from FILE.yaml`: a user's own description, with rails, several NVSwitches and unequal servers."""

import builtins
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from common import yaml_file
from common.errors import InputProblems
from simulation import cli
from simulation.topology.fabric import Fabric, names, tiers
from simulation.topology.reading import read
from simulation.topology.structure import servers

DATA = Path(__file__).resolve().parents[2] / "data" / "simulation" / "topo"
LINKS = "links: {n: {bandwidth: 1Gbps, latency: 1us}}\n"


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def built(text: str) -> Fabric:
    Path("cluster.yaml").write_text(text, encoding="utf-8")
    assert cli.main(["topology", "--from", "cluster.yaml", "--force"]) == 0
    return read(Path("cluster.topo")).fabric


def named_links(fabric: Fabric) -> list[str]:
    named = names(fabric, tiers(fabric))
    return [f"{named[a]}-{named[b]} {fabric.texts[kind].bandwidth}" for a, b, kind in fabric.links()]


def test_twenty_lines_describe_two_pods(capsys: pytest.CaptureFixture[str]) -> None:
    text = (DATA / "two_pods.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 21 and text.startswith("#")
    fabric = built(text)
    assert (fabric.gpus, fabric.nvswitches, fabric.switches) == (2 * 80, 2 * 36, 2 * 12 + 4)
    assert Counter(map(len, servers(fabric))) == {8: 16, 4: 8}
    links = Counter(name.rstrip("0123456789") for name in names(fabric, tiers(fabric)))
    assert links == {"gpu": 160, "nvswitch": 72, "leaf": 16, "spine": 8, "core": 4}
    found = named_links(fabric)
    assert len(found) == 2 * (64 * 4 + 16 + 80 + 32) + 8
    assert {"gpu0-nvswitch3 900Gbps", "gpu79-leaf3 400Gbps", "gpu80-leaf8 400Gbps", "spine5-core1 800Gbps"} <= {*found}
    assert "leaf0-spine0 800Gbps" in found, "two parallel links of 400 Gbps"
    capsys.readouterr()
    assert cli.main(["topology", "show", "cluster.topo"]) == 0
    said = capsys.readouterr().out
    assert "8 rails, " in said and "diameter      6 links" in said and "connected     yes" in said


def test_rails_blocks_and_turns() -> None:
    pattern = "servers: [{{count: 4, gpus: 2, nvswitches: 0}}]\nswitches: {{leaf: 2}}\n"
    for by, expected in {
        "rail": [0, 1, 0, 1, 0, 1, 0, 1],
        "block": [0, 0, 0, 0, 1, 1, 1, 1],
        "cycle": [0, 0, 1, 1, 0, 0, 1, 1],
    }.items():
        text = LINKS + pattern.format() + f"connect: [{{from: servers, to: leaf, by: {by}, link: n}}]\n"
        assert named_links(built(text)) == [f"gpu{gpu}-leaf{leaf} 1Gbps" for gpu, leaf in enumerate(expected)]


def test_a_template_can_be_described() -> None:
    assert cli.main(["topology", "-topo", "Spectrum-X", "-g", "32", "-npa", "2", "-psn", "3", "--output", "same"]) == 0
    built(
        "links:\n  nvlink: {bandwidth: 2880Gbps, latency: 0.000025ms}\n  n: {bandwidth: 400Gbps, latency: 0.0005ms}\n"
        "groups:\n  segment:\n    count: 2\n    servers: [{count: 2, gpus: 8}]\n    switches: {leaf: 8}\n"
        "    connect: [{from: servers, to: leaf, by: rail, link: n}]\nswitches: {spine: 3}\n"
        "connect: [{from: segment.leaf, to: spine, link: n}]\n"
    )
    assert Path("cluster.topo").read_bytes() == Path("same").read_bytes()


def test_groups_are_nested_and_parts_are_selected() -> None:
    fabric = built(
        LINKS + "groups:\n  pod:\n    count: 2\n    groups:\n      rack:\n        count: 3\n"
        "        servers: [{gpus: 1, nvswitches: 0}]\n        switches: {tor: 1}\n"
        "        connect: [{from: servers, to: tor, link: n}]\n    switches: {agg: 1}\n"
        "    connect: [{from: 'rack.tor[1:]', to: agg, link: n}]\n"
    )
    assert [link for link in named_links(fabric) if "spine" in link] == [
        f"leaf{leaf}-spine{spine} 1Gbps" for leaf, spine in ((1, 0), (2, 0), (4, 1), (5, 1))
    ]
    assert fabric.gpus_per_server == 1 and fabric.gpus == 6


def test_every_mistake_is_told_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("bad.yaml").write_text(
        "gpu_type: H1000\nlinks:\n  n: {bandwidth: fast, latency: 1us, delay: 2}\n  m: {latency: 1us, error_rate: 2}\n"
        "servers:\n  - {gpus: 0, count: true, nvlink: x}\n  - 7\nswitches: {leaf: -1, servers: 1}\nswitch: 2\n"
        "connect:\n  - {from: a, by: rails, link: y}\ngroups: {pod: []}\n",
        encoding="utf-8",
    )
    assert cli.main(["topology", "--from", "bad.yaml"]) == 2
    said = [line.removeprefix("error: bad.yaml, ") for line in capsys.readouterr().err.splitlines()]
    for expected in (
        "the file 'switch': did you mean switches?",
        "gpu_type 'H1000': must be one of A100,",
        "links.n 'delay': allowed: bandwidth, latency, error_rate",
        "links.n.bandwidth 'fast': must be a positive number with a unit",
        "links.m.bandwidth: is missing",
        "links.m.error_rate '2': must be a number from 0 to below 1",
        "servers[0].gpus 0: must be a whole number of at least 1",
        "servers[0].count True: must be a whole number of at least 1",
        "servers[0].nvlink 'x': must be one of links: n, m",
        "servers[1] 7: must have keys: name, count, gpus, nvswitches, nvlink",
        "switches.leaf -1: must be a whole number of at least 1",
        "connect[0].to: is missing",
        "connect[0].by 'rails': must be one of all, rail, block, cycle",
        "connect[0].link 'y': must be one of links: n, m",
        "groups.pod []: must have keys: count, servers, switches, groups, connect",
        "the cluster 'servers': names more than one thing: give each a name of its own",
    ):
        assert any(line.startswith(expected) for line in said), (expected, said)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


# Merges of merges, doubling 40 times; keys whose comparison, each with each, took minutes.
MERGES = "a0: &a0 {x0: 1, y0: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in range(1, 40))
MANY_KEYS = "".join(f"k{n}: 1\n" for n in range(60_000))
ONE = "servers: [{gpus: 2, nvswitches: 0}]\nswitches: {leaf: 2}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file: must have keys: gpu_type, links, servers"),
        ("a: [", "is no YAML: while parsing a flow node"),
        ("a: {b: 1, b: 2}", "line 1 b: is there more than once"),
        ("a: !!int ''", "is no YAML: string index out of range"),
        ("a: !!timestamp x", "is no YAML: "),
        ("a: !!bool x", "is no YAML: 'x'"),
        ("!!set [a]", "is no YAML: "),
        ("a: 1" + ":59" * 2000 + ":0.5", "is no YAML: int too large"),
        (MERGES, "has more than 1000000 values where its aliases are written out"),
        ("a: &a [1]\nb: &b {<<: *c}\n", "is no YAML: found undefined alias"),
        (MANY_KEYS + "k7: 2\n", "line 1 k7: is there more than once"),
        ("? [a, b]\n: 1\n", "found unhashable key"),
        ("gpu_type: H100", "links: must name at least one kind of link"),
        (LINKS + "switches: {leaf: 1}", "servers: there must be at least one server with a GPU"),
        (LINKS + ONE + "connect: [{from: leef, to: leaf, link: n}]", "connect[0].from 'leef'"),
        (
            LINKS + ONE + "connect: [{from: servers, to: 'leaf[0:3]', link: n}]",
            "selects from 0:2, at least one of them",
        ),
        (
            LINKS + ONE + "connect: [{from: servers, to: 'leaf[1:1]', link: n}]",
            "selects from 0:2, at least one of them",
        ),
        (
            LINKS + ONE + "connect: [{from: servers, to: leaf, link: n, count: 2000000}]",
            "connect[0].count 2000000: must be few: a bandwidth from 1bps to 1000Tbps",
        ),
        (LINKS + ONE + "connect: [{from: leaf, to: servers, link: n}]", "connect[0].to servers: must be switches"),
        (LINKS + ONE + "connect: [{from: leaf, to: leaf, by: rail, link: n}]", "by rail: is for servers"),
        (LINKS + ONE + "connect: [{from: leaf, to: leaf, link: n}]", "connect[0].to leaf: links a node to itself"),
        (
            LINKS + "servers: [{gpus: 2000000000, count: 2, nvswitches: 0}]",
            "4000000000 nodes: at most 5000000 are built",
        ),
        (LINKS + "groups: &g\n  pod: {servers: [{gpus: 1, nvswitches: 0}], groups: *g}", "has groups in itself"),
        (
            LINKS + "servers: [{gpus: 3000, nvswitches: 2000, nvlink: n}]",
            "servers 6000000 links: at most 5000000 are built",
        ),
        (
            LINKS + "servers: [{gpus: 3000, nvswitches: 0}]\nswitches: {leaf: 2000}\n"
            "connect: [{from: servers, to: leaf, link: n}]",
            "connect[0] 6000000 links: at most 5000000 are built",
        ),
        (LINKS + "servers: [{gpus: 1, nvswitches: 0, name: a b}]", "must be a name of letters, digits, - and _"),
    ],
)
def test_what_is_no_description(text: str, said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    Path("bad.yaml").write_text(text, encoding="utf-8")
    assert cli.main(["topology", "--from", "bad.yaml"]) == 2
    assert said.replace("connect[0].from 'leef'", "connect[0].from leef: must be one of servers, leaf") in (
        error := capsys.readouterr().err
    ), error
    assert len([*tmp_path.iterdir()]) == 1


def test_values_are_counted_before_they_take_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A value takes 600 bytes: 64 MiB of them would take 10 GB."""
    monkeypatch.setattr(yaml_file, "_MOST_NODES", 1000)
    tracemalloc.start()
    try:
        with pytest.raises(InputProblems, match="has more than 1000 values"):
            yaml_file.parsed_yaml("- 1\n" * 200_000, tmp_path / "x.yaml", "--from")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert yaml_file.parsed_yaml("- 1\n" * 999, tmp_path / "x.yaml", "--from") == [1] * 999
    monkeypatch.setattr(yaml_file, "_MOST_BYTES", 1000)
    (tmp_path / "x.yaml").write_bytes(b"#" * 1000)
    assert len(yaml_file.file_text(tmp_path / "x.yaml", "--from")) == 1000
    (tmp_path / "x.yaml").write_bytes(b"#" * 1001)
    with pytest.raises(InputProblems, match="MiB"):
        yaml_file.file_text(tmp_path / "x.yaml", "--from")


def test_options_of_templates_have_no_effect_and_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        cli.main(
            ["topology", "--from", "x.yaml", "-topo", "NVL", "-g", "8", "--ro", "--name", "full", "--dialect", "simai"]
        )
        == 2
    )
    said = capsys.readouterr().err
    flags = [line.split(":")[1] for line in said.splitlines()]
    assert flags == [" -g 8", " --topology", " --ro", " --name full", " --dialect simai", " --from x.yaml"]
    assert cli.main(["topology", "--from", "x.yaml"]) == 2
    assert "x.yaml: No such file or directory" in capsys.readouterr().err


def test_without_pyyaml_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "yaml":
            raise ImportError
        return whole(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    Path("x.yaml").write_text(LINKS, encoding="utf-8")
    assert cli.main(["topology", "--from", "x.yaml"]) == 1
    assert "--from needs PyYAML: pip install -r requirements/simulation.txt" in capsys.readouterr().err


TORUS = """gpu_type: H100
links: {t: {bandwidth: 400Gbps, latency: 0.0005ms}}
servers: [{name: x, count: 4, gpus: 2, nvswitches: 0}]
connect:
  - {from: "x[0:3]", to: "x[1:4]", by: cycle, link: t}
  - {from: "x[3:4]", to: "x[0:1]", by: cycle, link: t}
"""


def test_gpus_can_be_linked_to_a_torus(tmp_path: Path) -> None:
    (tmp_path / "torus.yaml").write_text(TORUS)
    assert cli.main(["topology", "--from", str(tmp_path / "torus.yaml"), "--output", str(tmp_path / "t")]) == 0
    made = read(tmp_path / "t").fabric
    found = {frozenset((a, b)) for a, b, _ in made.links()}
    assert found == {frozenset((gpu, (gpu + 2) % 8)) for gpu in range(8)} and made.gpus == 8


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("by: cycle", "by: rail", "from servers to servers is all or cycle"),
        ('to: "x[1:4]"', 'to: "x[0:3]"', "links a node to itself"),
    ],
)
def test_wrong_links_between_gpus(
    old: str, new: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "torus.yaml").write_text(TORUS.replace(old, new))
    assert cli.main(["topology", "--from", str(tmp_path / "torus.yaml"), "--output", str(tmp_path / "t")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "t").exists()
