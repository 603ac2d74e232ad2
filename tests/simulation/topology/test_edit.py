"""`topology edit`: degraded and cut links, slow GPUs, and the sidecar."""

import json
from pathlib import Path

import pytest

from common.errors import InputProblems
from simulation import cli
from simulation.topology.whatif import scaled, slow_gpus_of


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """A network of 32 GPUs, 4 servers, 4 NVSwitches (32-35), 8 leaves (36-43), 2 spines (44, 45)."""
    monkeypatch.chdir(tmp_path)
    assert cli.main(["topology", "-topo", "Spectrum-X", "-g", "32", "-psn", "2", "--output", "base"]) == 0
    capsys.readouterr()
    return Path("base").read_text(encoding="utf-8").splitlines()


def edit(*words: str) -> int:
    return cli.main(["topology", "edit", *words])


def test_links_are_degraded_and_cut_and_nothing_else_changes(base: list[str]) -> None:
    assert (
        edit("base", "--degrade", "leaf3-*:0.5", "--cut", "gpu7-leaf*", "--slow-gpu", "12:0.8", "--output", "new") == 0
    )
    expected = []
    for line in base[2:]:
        a, b, bandwidth, *rest = line.split()
        if "39" in (a, b):
            bandwidth = "200Gbps"
        if (a, b) != ("7", "43"):
            expected.append(" ".join([a, b, bandwidth, *rest]))
    changed = Path("new").read_text(encoding="utf-8").splitlines()
    assert changed[2:] == expected and changed[1] == base[1]
    assert changed[0] == base[0].replace(" 80 ", " 79 ") != base[0]
    data = json.loads(Path("new.whatif.json").read_text(encoding="utf-8"))
    assert data["cut_links"] == [[7, 43]] and data["slow_gpus"] == {"12": 0.8} and data["base"] == "base"
    assert data["degraded_links"] == [
        [3, 39, 0.5],
        [11, 39, 0.5],
        [19, 39, 0.5],
        [27, 39, 0.5],
        [39, 44, 0.5],
        [39, 45, 0.5],
    ]
    assert slow_gpus_of(Path("new")) == {12: 0.8} and slow_gpus_of(Path("base")) == {}


def test_a_number_is_not_the_beginning_of_another(base: list[str]) -> None:
    assert edit("base", "--cut", "gpu1-leaf*", "--cut", "spine1-leaf?") == 0
    assert json.loads(Path("base-whatif.whatif.json").read_text())["cut_links"][0] == [1, 37]
    assert len(Path("base-whatif").read_text().splitlines()) == len(base) - 9


def test_factors_multiply_and_edits_of_edits_add_up(base: list[str]) -> None:
    assert edit("base", "--degrade", "leaf3-spine0:0.5", "--degrade", "leaf3-*:0.5", "--slow-gpu", "gpu1:0.5") == 0
    assert "39 44 100Gbps 0.0005ms 0" in Path("base-whatif").read_text(encoding="utf-8")
    assert edit("base-whatif", "--slow-gpu", "1:0.5", "--slow-gpu", "2:0.9", "--output", "more") == 0
    assert slow_gpus_of(Path("more")) == {1: 0.25, 2: 0.9}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "topology edit: nothing to change: give --degrade, --cut or --slow-gpu"),
        (["--degrade", "leaf3-*"], "--degrade leaf3-*: must end in a colon and a number above 0 and at most 1"),
        (["--degrade", "leaf3-*:0"], "--degrade leaf3-*:0: must end in a colon"),
        (["--degrade", "leaf3-*:1e-12"], "--degrade 4e-10Gbps: must be a bandwidth from 1bps to 1000Tbps"),
        (["--degrade", "leaf3-*:nan"], "--degrade leaf3-*:nan: must end in a colon"),
        (["--slow-gpu", "leaf1:0.5"], "--slow-gpu leaf1:0.5: must be a GPU and the share"),
        (["--slow-gpu", "32:0.5"], "--slow-gpu 32: must be a GPU from 0 to 31"),
        (
            ["--cut", "leaf9-*"],
            "--cut leaf9-*: matches no link; a link is called gpu7-leaf3, nodes are gpu0, nvswitch0, ",
        ),
    ],
)
def test_mistakes_leave_no_file(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert edit("base", *words) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


def test_all_mistakes_are_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert edit("base", "--cut", "x", "--degrade", "y:0.5", "--slow-gpu", "99:1") == 2
    assert capsys.readouterr().err.count("error: ") == 3


def test_a_parted_network_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert edit("base", "--cut", "gpu7-*", "--json") == 0
    captured = capsys.readouterr()
    assert "warning: the network falls into 2 parts, before there were 1" in captured.err
    assert json.loads(captured.out)["cut_links"] == 2
    assert cli.main(["topology", "show", "base-whatif"]) == 0
    assert "no link at all: gpu7 (GPU)" in capsys.readouterr().out


def test_other_content_stays_without_force(capsys: pytest.CaptureFixture[str]) -> None:
    assert edit("base", "--slow-gpu", "1:0.5") == 0 == edit("base", "--slow-gpu", "1:0.5")
    topology, beside = Path("base-whatif").read_bytes(), Path("base-whatif.whatif.json").read_bytes()
    assert edit("base", "--cut", "gpu1-leaf*") == 2
    assert capsys.readouterr().err.count("is there with other content; give --force") == 2
    assert (Path("base-whatif").read_bytes(), Path("base-whatif.whatif.json").read_bytes()) == (topology, beside)
    assert edit("base", "--cut", "gpu1-leaf*", "--force") == 0


@pytest.mark.parametrize("text", ["{", "[]", '{"format": "other", "slow_gpus": {}}', '{"slow_gpus": {"a": 1}}'])
def test_a_sidecar_of_another_form_is_refused(text: str) -> None:
    Path("base.whatif.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputProblems, match="must be JSON of the format `clusterdyno-whatif 1`"):
        slow_gpus_of(Path("base"))


def test_a_sidecar_of_another_topology_is_refused() -> None:
    assert edit("base", "--slow-gpu", "1:0.5") == 0
    Path("base-whatif").write_text(Path("base").read_text() + "0 36 1Gbps 1ms 0\n")
    with pytest.raises(InputProblems, match="belongs to another content of base-whatif"):
        slow_gpus_of(Path("base-whatif"))


def test_bandwidths_keep_their_unit() -> None:
    assert [scaled(*each) for each in (("400Gbps", 0.5), ("2.5e1GB/s", 0.1), ("1Gbps", 1 / 3))] == [
        "200Gbps",
        "2.5GB/s",
        "0.333333333333Gbps",
    ]


@pytest.mark.parametrize("output", ["-", "/dev/stdout", "/dev/null"])
def test_an_output_without_a_place_for_the_sidecar_is_refused(
    output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.iterdir())
    assert edit("base", "--cut", "gpu7-leaf*", "--output", output) == 2
    captured = capsys.readouterr()
    assert "needs a file's name: the sidecar stands beside it" in captured.err and not captured.out
    assert sorted(tmp_path.iterdir()) == before
