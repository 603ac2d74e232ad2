"""InfraGraph: every template comes back byte for byte, and other writers' files are read or refused with a reason."""

import json
from pathlib import Path

import pytest

from simulation import cli
from simulation.topology.fabric import names, tiers
from simulation.topology.reading import read

DATA = Path(__file__).resolve().parents[2] / "data" / "simulation" / "topo"
TEMPLATES = [
    "-topo Spectrum-X -g 24 -psn 3 -npa 2 -er 0.001 -nl 0.00001ms",
    "-topo AlibabaHPN -g 24 -psn 4 -npa 2 -bw 25GBps",
    "-topo AlibabaHPN --dp -g 24 -psn 5 -npa 2",
    "-topo DCN+ -g 24 -psn 2 -npa 8 -gt A100",
    "-topo DCN+ --dt -g 24 -psn 2 -npa 8 -l 1us",
    "-topo NVL -gps 36 -g 36 -gt GB300 -psn 2",
    "--ro -g 16 -psn 1",
    "--ro --dt -g 16 -psn 2 -nsps 4",
    "--ro --dt --dp -g 16 -psn 2",
    "-g 16 -psn 1",
    "--dt -g 16 -psn 1",
]


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def call(*words: str) -> int:
    return cli.main(["topology", *words])


# The package takes seconds for a rack of 72: it walks over all links of a server once per GPU and NVSwitch.
LARGE = "-topo NVL -g 144 -psn 2 -npa 18"


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        *((words, ".yaml") for words in TEMPLATES),
        (TEMPLATES[0], ".json"),
        pytest.param(LARGE, ".yaml", marks=pytest.mark.nightly),
    ],
)
def test_every_template_comes_back(words: str, ending: str) -> None:
    assert call(*words.split(), "--output", "base") == 0
    assert call("export", "base", "--output", f"graph{ending}") == 0
    assert call("import", f"graph{ending}", "--output", "back") == 0
    assert Path("back").read_bytes() == Path("base").read_bytes()


def test_in_a_folder_the_file_gets_its_usual_name() -> None:
    assert call(*TEMPLATES[0].split(), "--output", "base") == 0
    Path("folder").mkdir()
    assert call("export", "base", "--output", "folder") == 0
    assert call("import", "folder/base.infragraph.yaml", "--output", "back") == 0
    assert Path("back").read_bytes() == Path("base").read_bytes()


@pytest.mark.parametrize("name", ["DCN+SingleToR_16g_8gps_400Gbps_H100", "two.pods.topo", "Netz ä,b"])
def test_a_files_name_need_not_be_one_of_the_schema(name: str) -> None:
    assert call("-topo", "DCN+", "-g", "16", "-psn", "2", "--output", name) == 0
    assert call("export", name) == 0 == call("import", f"{name}.infragraph.yaml", "--output", "back")
    assert Path("back").read_bytes() == Path(name).read_bytes()


def test_slices_keep_the_file_short(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("-topo", "Spectrum-X", "-g", "1024", "--output", "base") == 0
    capsys.readouterr()
    assert call("export", "base", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": "base.infragraph.yaml", "devices": 3, "instances": 3, "edges": 17,
    }  # fmt: skip


def test_unequal_servers_and_edits_come_back() -> None:
    assert call("--from", str(DATA / "two_pods.yaml"), "--output", "pods") == 0
    assert call("edit", "pods", "--degrade", "gpu9-nvswitch*:0.5", "--cut", "leaf3-spine1", "--output", "base") == 0
    assert call("export", "base") == 0 == call("import", "base.infragraph.yaml", "--output", "back")
    one, other = read(Path("base")).fabric, read(Path("back")).fabric
    assert one.roles == other.roles and one.gpus_per_server == other.gpus_per_server

    def links(fabric: object) -> list[tuple[int, int, str]]:
        return sorted((min(a, b), max(a, b), str(its.texts[kind])) for its in [fabric] for a, b, kind in its.links())  # type: ignore[attr-defined]

    assert links(one) == links(other)


# Another writer's: a server with a CPU, NICs behind a PCIe link, and a switch with ports; bandwidths in GBps.
OTHER = """\
name: other
devices:
- name: host
  components:
  - {name: cpu, count: 1, choice: cpu}
  - {name: xpu, count: 2, choice: xpu}
  - {name: nic, count: 2, choice: nic}
  - {name: nvsw, count: 1, choice: switch}
  links:
  - name: pcie
    physical: {bandwidth: {choice: gigabytes_per_second, gigabytes_per_second: 64}, latency: {choice: ns, ns: 100}}
  - name: fast
    physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 3600}, latency: {choice: ns, ns: 25}}
  edges:
  - {ep1: {component: "xpu[0:2]"}, ep2: {component: "nic[0:2]"}, scheme: one2one, link: pcie}
  - {ep1: {component: "xpu[0:2]"}, ep2: {component: "nvsw[0]"}, scheme: many2many, link: fast}
  - {ep1: {component: "cpu[0]"}, ep2: {component: "nic[0:2]"}, scheme: many2many, link: pcie}
- name: switch
  components:
  - {name: asic, count: 1, choice: switch}
  - {name: port, count: 4, choice: port}
  links:
  - name: inside
    physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 400}, latency: {choice: ns, ns: 1}}
  edges:
  - {ep1: {component: "asic[0]"}, ep2: {component: "port[0:4]"}, scheme: many2many, link: inside}
links:
- name: wire
  physical: {bandwidth: {choice: gigabits_per_second, gigabits_per_second: 200}, latency: {choice: us, us: 0.5}}
instances:
- {name: host, device: host, count: 2}
- {name: switch, device: switch, count: 1}
edges:
- ep1: {instance: "host[0]", component: "nic[0:2]"}
  ep2: {instance: "switch[0]", component: "port[0:2]"}
  scheme: one2one
  link: wire
- ep1: {instance: "host[1]", component: "nic[0:2]"}
  ep2: {instance: "switch[0]", component: "port[2:4]"}
  scheme: one2one
  link: wire
"""


def test_what_lies_between_two_nodes_becomes_one_link(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(OTHER, encoding="utf-8")
    assert call("import", "other.yaml") == 0
    assert "warning: the file names no known GPU type: H100 is assumed" in capsys.readouterr().err
    fabric = read(Path("other.yaml.topo")).fabric
    named = names(fabric, tiers(fabric))
    found = [f"{named[a]}-{named[b]} {fabric.texts[kind]}" for a, b, kind in fabric.links()]
    assert found == [
        line
        for gpu, server in ((0, 0), (1, 0), (2, 1), (3, 1))
        for line in (f"gpu{gpu}-nvswitch{server} 3600Gbps 25ns 0", f"gpu{gpu}-leaf0 200Gbps 601ns 0")
    ]
    assert call("import", "other.yaml", "-gt", "A100", "--output", "a100") == 0
    assert Path("a100").read_text(encoding="utf-8").startswith("7 2 2 1 8 A100\n")


BOMB = "a0: &a0 [1, 1]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x: [", "is no YAML: while parsing a flow node"),
        (BOMB, "has more than 1000000 values where its aliases are written out"),
        ("devices: 7", "is no InfraGraph: "),
        (OTHER.replace("choice: xpu", "choice: memory"), "components: must have GPUs: components whose choice is xpu"),
        (OTHER.replace("choice: cpu", "choice: custom, custom: {type: dpu}"), "joins 3 others: only what lies between"),
        (OTHER.replace("_second: 3600", "_second: 3600000"), "must be a bandwidth from 1bps to 1000Tbps"),
        (OTHER.replace("ns: 25}", "ns: 2000000000}"), "must be a latency of at most 1s"),
        (OTHER.replace("latency: {choice: ns, ns: 25}", "latency: {choice: ns}"), "must have a latency"),
    ],
)
def test_what_cannot_be_read_is_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("bad.yaml").write_text(text, encoding="utf-8")
    assert call("import", "bad.yaml") == 2
    assert said in (error := capsys.readouterr().err), error
    assert [path.name for path in tmp_path.iterdir()] == ["bad.yaml"]


def test_wrong_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("-g", "8", "--output", "base") == 0
    assert call("export", "base", "--output", "graph.txt") == 2
    assert call("import", "none.yaml", "-gt", "FOO") == 2
    assert call("import", "none.yaml") == 2
    said = capsys.readouterr().err
    assert "--output graph.txt: must end in one of .yaml, .yml, .json" in said
    assert "-gt FOO: must be one of" in said and "none.yaml: No such file" in said
