"""`python -m simulation topology`: options, names, files and errors."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from simulation import cli

ROOT = Path(__file__).resolve().parents[3]


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def topology(words: str) -> int:
    return cli.main(["topology", *words.split()])


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_long_options_are_the_short_ones(tmp_path: Path) -> None:
    long = (
        "--topology Spectrum-X --gpu 16 --error_rate 0.001 --gpu_per_server 4 --gpu_type A100 --nv_switch_per_server 2 "
        "--nvlink_bw 2400Gbps --nv_latency 1ns --latency 1us --bandwidth 100Gbps --asw_switch_num 4 "
        "--nics_per_aswitch 2 --psw_switch_num 3 --ap_bandwidth 200Gbps --asw_per_psw 16"
    )
    short = (
        "-topo Spectrum-X -g 16 -er 0.001 -gps 4 -gt A100 -nsps 2 -nvbw 2400Gbps -nl 1ns -l 1us -bw 100Gbps -asn 4 "
        "-npa 2 -psn 3 -apbw 200Gbps -app 16"
    )
    assert topology(f"{long} --output long") == 0 == topology(f"{short} --output short")
    made = files(tmp_path)
    assert made["long"] == made["short"]
    lines = made["long"].decode().splitlines()
    assert lines[0] == "35 4 8 11 72 A100"
    assert lines[2:5] == ["0 16 2400Gbps 1ns 0.001", "0 17 2400Gbps 1ns 0.001", "0 24 100Gbps 1us 0.001"]
    assert lines[-1] == "31 34 200Gbps 1us 0.001"


def test_all_mistakes_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert topology("-topo FatTree -g 0 -gps 2.5 -bw fast -l soon -gt FOO -er 2 -psn -3 -app 1_0 -nvbw nanGbps") == 2
    said = capsys.readouterr().err
    assert said.splitlines() == [
        "error: -topo FatTree: must be one of Spectrum-X, AlibabaHPN, DCN+, NVL; without -topo give --ro, --dt or none",
        "error: -g 0: must be a whole number of at least 1",
        "error: -er 2: must be a number from 0 to below 1",
        "error: -gps 2.5: must be a whole number of at least 1",
        "error: -gt FOO: must be one of A100, A800, H20, H100, H200, H800, B200, B300, GB200, GB300",
        "error: -nvbw nanGbps: must be a positive number with a unit, such as 400Gbps, 50GBps or 100Mb/s",
        "error: -l soon: must be a number of at least 0 with a unit, such as 0.0005ms, 0.5us or 500ns",
        "error: -bw fast: must be a positive number with a unit, such as 400Gbps, 50GBps or 100Mb/s",
        "error: -psn -3: must be a whole number of at least 1",
        "error: -app 1_0: must be a whole number of at least 1",
    ]
    assert not files(tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-topo Spectrum-X -g 4104", "-g 4104: makes 9 segments of 512 GPUs; -app 64 allows at most 4096 GPUs"),
        ("-topo Spectrum-X -gps 72 -g 72", "allows none, because a segment has 72 leaves: give a larger -app"),
        ("-topo DCN+ --dt -g 520", "-g 520: makes 5 segments of 128 GPUs; -app 8 allows at most 512 GPUs"),
        ("-topo Spectrum-X -g 100", "-g 100: must be a multiple of -gps 8, for example 96 or 104"),
        ("-topo Spectrum-X -g 4", "-g 4: must be a multiple of -gps 8, for example 8"),
        ("--ro --dp", "--dp: two planes need a rail-optimised network with two ToRs: give --ro and --dt, too"),
        ("-g 8 -gps 1 -nsps 999999999", "-g 8: makes 8000000065 nodes; at most 2147483647 have an id"),
    ],
)
def test_what_does_not_fit_together(words: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert topology(words) == 2
    assert said in capsys.readouterr().err
    assert not files(tmp_path)


def test_a_blank_in_a_value_would_be_a_column(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "-bw", "400 Gbps", "-er", "0 "]) == 2
    assert "-bw 400 Gbps: must be a value without blanks" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("-topo Spectrum-X -g 8 --dt", "warning: --dt: has no effect on Spectrum-X"),
        ("-topo DCN+ -g 8 --ro --dp", "warning: --ro: has no effect on DCN+\nwarning: --dp: has no effect on DCN+"),
        (
            "-topo Spectrum-X -g 8 -asn 9",
            "warning: -asn 9: the other options make 8 leaves, which is what the file has",
        ),
        ("-topo Spectrum-X -g 8 -asn 8", ""),
    ],
)
def test_a_value_without_effect_is_told(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert topology(words) == 0
    assert capsys.readouterr().err.strip() == said


def test_other_content_is_overwritten_with_force_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert topology("-topo Spectrum-X -g 8 -psn 1") == 0 == topology("-topo Spectrum-X -g 8 -psn 1")
    before = files(tmp_path)
    assert topology("-topo Spectrum-X -g 8 -psn 2") == 2
    assert "Spectrum-X_8g_8gps_400Gbps_H100: is there with other content; give --force" in capsys.readouterr().err
    assert files(tmp_path) == before
    assert topology("-topo Spectrum-X -g 8 -psn 2 --force") == 0
    assert files(tmp_path) != before and len(files(tmp_path)) == 1


def test_the_full_name_tells_every_deviation(tmp_path: Path) -> None:
    assert topology("-topo Spectrum-X -g 8 -psn 2 -npa 64 -nvbw 2400Gbps -er 0.1 --name full") == 0
    assert topology("-topo Spectrum-X -g 8 --name full") == 0
    assert topology("-topo AlibabaHPN -g 8 -npa 64 --name full") == 0
    assert files(tmp_path).keys() == {
        "Spectrum-X_8g_8gps_400Gbps_H100_er0.1_nvbw2400Gbps_psn2",
        "Spectrum-X_8g_8gps_400Gbps_H100",
        "AlibabaHPN_8g_8gps_DualToR_SinglePlane_200Gbps_H100_npa64",
    }


def test_output_is_a_file_a_folder_or_stdout(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    (tmp_path / "folder").mkdir()
    assert topology("-topo Spectrum-X -g 8 --output folder") == 0 == topology("-topo Spectrum-X -g 8 --output new/file")
    one, other = tmp_path / "folder" / "Spectrum-X_8g_8gps_400Gbps_H100", tmp_path / "new" / "file"
    assert one.read_bytes() == other.read_bytes()
    capfdbinary.readouterr()
    assert topology("-topo Spectrum-X -g 8 --output -") == 0
    shown = capfdbinary.readouterr()
    assert shown.out == one.read_bytes() and b"8 GPUs in 1 server, " in shown.err


def test_json_has_the_counts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert topology("-topo AlibabaHPN -g 64 --json --output x") == 0
    size = (tmp_path / "x").stat().st_size
    assert json.loads(capsys.readouterr().out) == {
        "file": "x", "bytes": size, "gpus": 64, "servers": 8, "nvswitches": 8, "leaves": 16, "spines": 120,
        "links": 64 * 3 + 16 * 120, "gpu_type": "H100", "dialect": "clusterdyno", "warnings": [],
    }  # fmt: skip


def test_making_and_reading_a_template_imports_nothing_heavy() -> None:
    script = (
        "import sys\nfrom simulation import cli\n"
        "assert not cli.main(['topology', '-topo', 'Spectrum-X', '-g', '8', '--output', 'x'])\n"
        "for verb in ('show', 'draw'): assert not cli.main(['topology', verb, 'x'])\n"
        "assert not cli.main(['topology', 'edit', 'x', '--slow-gpu', '1:0.5'])\n"
        "heavy = 'numpy scipy pandas polars torch run_benchmarks networkx yaml infragraph pydantic'.split()\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


def test_an_interrupted_command_leaves_nothing(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\nfrom simulation import cli\nfrom simulation.topology import text\n"
        "whole = text.chunks\n"
        "def cut(shape):\n    pieces = whole(shape)\n    yield next(pieces)\n    os.kill(os.getpid(), signal.{})\n"
        "    yield from pieces\n"
        "text.chunks = cut\nsys.exit(cli.main(['topology', '-topo', 'Spectrum-X', '-g', '8', '--output', 'deep/file']))"
    )
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        done = subprocess.run(
            [sys.executable, "-c", script.format(name)],
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (130, "interrupted\n")
    assert not files(tmp_path)


def test_a_number_with_zeros_before_it_is_the_number_in_names_too(tmp_path: Path) -> None:
    assert topology("-topo Spectrum-X -g 032 -psn 064 --name full") == 0
    assert [*files(tmp_path)] == ["Spectrum-X_32g_8gps_400Gbps_H100"]
