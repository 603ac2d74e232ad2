"""NVL: racks of 36 or 72 GPUs in one NVLink domain, joined by rails."""

from collections import Counter
from pathlib import Path

import pytest

from common.units import bandwidth_bps
from simulation import cli


def made(folder: Path, *words: str) -> tuple[list[str], list[list[str]]]:
    """The header's and the links' columns of `topology -topo NVL ...`."""
    path = folder / "made"
    assert cli.main(["topology", "-topo", "NVL", *words, "--output", str(path), "--force"]) == 0
    header, _, *links = path.read_text(encoding="utf-8").splitlines()
    return header.split(), [line.split() for line in links]


@pytest.mark.parametrize(("per_rack", "racks"), [(72, 1), (72, 4), (36, 1), (36, 8)])
def test_every_gpu_has_a_link_to_each_of_18_chips_and_one_nic(tmp_path: Path, per_rack: int, racks: int) -> None:
    gpus = per_rack * racks
    header, links = made(tmp_path, "-gps", str(per_rack), "-g", str(gpus))
    assert header[1:3] == [str(per_rack), str(18 * racks)] and header[5] == "GB200"
    assert len(links) == int(header[4])
    nvlink, nics = Counter[str](), dict[int, int]()
    for a, b, bandwidth, latency, _ in links:
        if int(a) < gpus and int(b) < gpus + 18 * racks:
            assert (bandwidth, latency) == ("400Gbps", "0.000025ms")
            assert (int(b) - gpus) // 18 == int(a) // per_rack
            nvlink[a] += 1
        elif int(a) < gpus:
            nics[int(a)] = int(b)
    assert set(nvlink.values()) == {18} and len(nvlink) == gpus == len(nics)
    # 18 links of 50 GB/s a direction are the 1.8 TB/s both ways of a GPU; 72 of them 129.6 TB/s.
    both_ways = 18 * 2 * bandwidth_bps("400Gbps") / 8
    assert both_ways == 1.8e12 and 72 * both_ways == 129.6e12
    # A tray's four GPUs are on four rails; the same position of every tray is on the same leaf.
    assert len(set(nics.values())) == 4
    assert all(nics[gpu] == nics[gpu % 4] for gpu in nics)


def test_a_segment_is_four_racks_of_72(tmp_path: Path) -> None:
    header, links = made(tmp_path, "-g", "576")
    assert header[3] == str(8 + 72)
    leaf_of = {int(a): int(b) for a, b, *_ in links if int(a) < 576 and int(b) >= 576 + 8 * 18}
    assert [leaf_of[0], leaf_of[287], leaf_of[288]] == [720, 723, 724]


def test_gb300_has_nics_of_800_gbps(tmp_path: Path) -> None:
    assert {link[2] for link in made(tmp_path, "-gt", "GB300")[1]} == {"400Gbps", "800Gbps"}
    assert {link[2] for link in made(tmp_path, "-gt", "GB300", "-bw", "200Gbps", "-apbw", "100Gbps")[1]} == {
        "400Gbps",
        "200Gbps",
        "100Gbps",
    }


def test_without_options_it_is_one_rack_of_72(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["topology", "-topo", "NVL"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["NVL_72g_72gps_400Gbps_GB200"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-gps 8 -g 64", "error: -gps 8: must be 36 or 72 for NVL"),
        ("-g 100", "error: -g 100: must be a multiple of -gps 72, for example 72 or 144"),
        ("-gps 36", "error: -g: is missing: with -gps 36 give the GPUs"),
        ("-g 10440", "error: -g 10440: makes 37 segments of 288 GPUs; -app 144 allows at most 10368 GPUs"),
    ],
)
def test_what_is_no_rack_is_refused(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "-topo", "NVL", *words.split()]) == 2
    assert said in capsys.readouterr().err


def test_the_original_has_no_nvl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["topology", "-topo", "NVL", "--ro", "-g", "16", "--dialect", "simai"]) == 0
    assert "warning: -topo NVL: the original has no such template" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["Rail_Opti_SingleToR_16g_8gps_400Gbps_H100"]
