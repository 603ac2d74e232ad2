"""`python -m simulation flows`: its files, its summary, and what it refuses."""

import argparse
import csv
import json
from pathlib import Path

import pytest

from simulation import cli
from simulation.flows.command import COLUMNS_1_6, COLUMNS_2_30
from simulation.flows.options import add_arguments
from tests.docs.pages import ROOT, text_of
from tests.simulation.flows.interpreter import check, parse


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for variable in ("AS_NVLS_ENABLE", "AS_PXN_ENABLE"):
        monkeypatch.delenv(variable, raising=False)


AR = "--op AllReduce --size 1M"
FILE = Path("ncclFlowModel_detailed_flows.csv")


def run(words: str) -> int:
    return cli.main(["flows", "--force", *words.split()])


def test_flows_on_a_network_are_those_of_its_ranks_and_servers() -> None:
    """What the topology says of GPUs and servers is what options would say."""
    assert cli.main(["topology", "-topo", "Spectrum-X", "-g", "32", "-gps", "4", "-gt", "A100", "--output", "net"]) == 0
    assert run(f"{AR} -n net --output of_network") == 0
    assert run(f"{AR} --ranks 32 --gpus-per-server 4 --gpu-type A100 --output of_options") == 0
    assert Path("of_network").read_bytes() == Path("of_options").read_bytes()
    assert run(f"{AR} -n net --ranks 8 --output of_eight") == 0
    ends = {int(row["src"]) for row in table(Path("of_eight"))}
    assert ends == set(range(8))


def test_a_network_that_the_options_contradict_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["topology", "-topo", "Spectrum-X", "-g", "32", "--output", "net"]) == 0
    capsys.readouterr()
    assert run(f"{AR} -n net --ranks 64 --gpus-per-server 4") == 2
    assert capsys.readouterr().err.splitlines() == [
        "error: --gpus-per-server 4: net says 8", "error: --ranks 64: net has 32 GPUs"
    ]  # fmt: skip
    assert run(f"{AR} -n missing") == 2 and "missing: No such file" in capsys.readouterr().err
    assert not FILE.exists()


def table(file: Path = FILE) -> list[dict[str, str]]:
    lines = [line for line in file.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def test_the_default_dialect_has_the_columns_of_simccl_2_30() -> None:
    assert run("--op AllReduce --size 4194304 --nRanks 8 --nNodes 1 --gpus_per_node 8 --gpu_type A100") == 0
    assert FILE.read_text().startswith(COLUMNS_2_30)
    found = table()
    assert len(found) == 8 * 8 * 14
    assert found[0]["collective"] == "TP_0_0_0_3_4194304"
    assert found[1] | {"flow_id": "8", "chunk_id": "1", "parent_flow_ids": "7", "prev_flow_ids": "7"} == found[1]
    assert {(row["op"], row["algorithm"], row["protocol"], row["conn_type"]) for row in found} == {
        ("3", "1", "0", "RING")
    }


@pytest.mark.parametrize(
    ("words", "repair"),
    [
        ("--op AllReduce --size 1000003 --ranks 8 --algorithm ring", "remainder"),
        ("--op AllToAll --size 1M --ranks 8 --group EP --tp 1 --ep 8", "expert groups"),
        (f"{AR} --ranks 16 --group DP --tp 2 --pp 2 --algorithm ring", "pipeline"),
        (f"{AR} --ranks 24 --group DP --tp 3 --algorithm ring", "uneven group"),
        ("--op AllReduce --size 16M --ranks 32 --algorithm tree", "tree"),
        ("--op AllReduce --size 16M --ranks 32 --algorithm nvls", "NVLS"),
        ("--op AllGather --size 512K --ranks 4 --gpus-per-server 1", "PAT"),
        ("--op Broadcast --size 16M --ranks 16", "Broadcast"),
        ("--op SendRecv --size 16M --ranks 16 --group PP --pp 2", "pipeline"),
    ],
)
def test_the_first_line_says_what_was_repaired(words: str, repair: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{words} --json") == 0
    first = FILE.read_text().splitlines()[0]
    assert first.startswith("# dialect clusterdyno: repaired ") and f"{repair} (" in first
    assert any(each.startswith(f"{repair} (") for each in json.loads(capsys.readouterr().out)["repaired"])


@pytest.mark.parametrize("words", ["--op AllToAll --size 16M --ranks 16", "--op AllGather --size 16M --ranks 16"])
def test_a_file_with_nothing_repaired_is_plain(words: str) -> None:
    assert run(words) == 0
    assert FILE.read_text().startswith(COLUMNS_2_30)


def test_two_trees_carry_half_of_the_bytes_each_up_and_down() -> None:
    assert run("--op AllReduce --size 16M --ranks 32 --algorithm tree") == 0
    halves = [0, 0]
    for row in table():
        halves[int(row["channel_id"]) % 2] += int(row["flow_size"])
    assert halves == [2 * 31 * (8 << 20)] * 2
    assert {row["algorithm"] for row in table()} == {"0"}


@pytest.mark.parametrize(
    ("between", "algorithm", "kinds"), [("tree", "5", {"NVLS", "NVLS_TREE"}), ("ring", "4", {"NVLS", "RING"})]
)
def test_nvls_on_several_servers_has_switches_inside(between: str, algorithm: str, kinds: set[str]) -> None:
    assert run(f"--op AllReduce --size 16M --ranks 32 --algorithm nvls --between {between}") == 0
    found = table()
    assert {row["conn_type"] for row in found} == kinds and {row["algorithm"] for row in found} == {algorithm}
    for row in found:
        switch = max(int(row["src"]), int(row["dest"]))
        assert (row["conn_type"] == "NVLS") == (switch >= 32)
        if switch >= 32:
            assert min(int(row["src"]), int(row["dest"])) // 8 == switch - 32, "a switch serves its own server alone"
    check(parse(FILE.read_text()), "AllReduce", tuple(range(32)), 16 << 20)


def test_pxn_leaves_on_the_receivers_rail() -> None:
    assert run("--op AllToAll --size 16M --ranks 32 --tp 32 --pxn") == 0
    found = table()
    for row in found:
        source, target = int(row["src"]), int(row["dest"])
        if source // 8 != target // 8:
            assert source % 8 == target % 8, "a flow between servers changes its rail"
    assert {row["conn_type"] for row in found} == {"PTP", "PTP_PXN_START", "PTP_PXN_END"}
    check(parse(FILE.read_text()), "AllToAll", tuple(range(32)), 16 << 20)


def test_rings_with_pxn_leave_on_the_rail_too() -> None:
    assert run("--op AllGather --size 16M --ranks 16 --pxn") == 0
    found = table()
    assert {row["conn_type"] for row in found} == {"RING", "PXN_INIT", "PXN"}
    assert all(
        int(row["src"]) % 8 == int(row["dest"]) % 8 for row in found if int(row["src"]) // 8 != int(row["dest"]) // 8
    )


def test_pipeline_neighbours_send_both_ways() -> None:
    assert run("--op SendRecv --size 1M --ranks 32 --group PP --tp 8 --pp 4 --rank 3") == 0
    ways = [(int(row["src"]), int(row["dest"])) for row in table()]
    assert sorted(ways) == sorted([(3, 11), (11, 19), (19, 27), (11, 3), (19, 11), (27, 19)])


def test_the_summary_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--op AllReduce --size 16M --ranks 32 --gpu-type A100") == 0
    said = capsys.readouterr().out
    assert (
        "algorithm tree (tree: 255.9 us modelled; ring: 691.6 us modelled; nvls: the GPU's NVSwitches cannot add)"
        in said
    )
    assert run("--op AllReduce --size 16M --ranks 32 --gpu-type A100 --nic-bandwidth 1000 -nv 9000 --json") == 0
    assert json.loads(capsys.readouterr().out)["modelled_us"]["ring"] < 336


def test_tables_of_the_default_dialect_are_written_beside() -> None:
    assert (
        run("--op AllReduce --size 1M --ranks 16 --group EP --ep 4 --tp 1 --rings r.csv --trees t.csv --groups g.csv")
        == 0
    )
    groups = table(Path("g.csv"))
    assert [row["type"] for row in groups] == ["DP"] + ["EP"] * 4 + ["DP_EP"] * 4
    assert {row["rank"] for row in table(Path("r.csv"))} == {row["rank"] for row in table(Path("t.csv"))} == set("0123")


def test_the_page_explains_every_option() -> None:
    page = text_of(ROOT / "docs" / "reference" / "simulation.md")
    parser = argparse.ArgumentParser(add_help=False)
    add_arguments(parser)
    options = [action.option_strings for action in parser._actions]
    assert not [names for names in options if not any(f"`{name}`" in page for name in names)]


def test_the_formats_name_every_column() -> None:
    page = text_of(ROOT / "docs" / "reference" / "file-formats.md")
    assert all(f"`{column}`" in page for column in COLUMNS_2_30.strip().split(","))
    assert f"\n    {COLUMNS_1_6.strip()}\n" in page


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (f"{AR} --ranks 8", []),
        ("--op AllReduce --size 1000003 --ranks 8", ["3 bytes have no flow (size // ranks // rings)"]),
        ("--op AllReduce --size 63 --ranks 8", ["no flow at all (fewer bytes than ranks * rings)"]),
        (f"{AR} --ranks 16 --algorithm nvls", ["no flow at all (NVLS on several servers)"]),
        (f"{AR} --ranks 24 --tp 3 --group DP", ["rings leave out 2 of 8 ranks (uneven servers)"]),
    ],
)
def test_the_summary_names_the_mistakes_that_the_originals_dialect_keeps(
    words: str, kept: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"--dialect simai {words} --json") == 0
    assert json.loads(capsys.readouterr().out)["kept"] == kept


REFUSED = [
    ("", ["--op is missing", "--size is missing", "--ranks is missing"]),
    ("--op Gather --size -1 --group XP --ranks 8", ["--op Gather: allowed is AllReduce", "--size -1", "--group XP"]),
    (f"{AR} --ranks 12", ["--ranks 12: must be a multiple of --gpus-per-server 8"]),
    (f"{AR} --ranks 16 --tp 3", ["--ranks 16: must be a multiple of --tp 3"]),
    (f"{AR} --ranks 16 --group EP --ep 3", ["--ep 3: must divide the 16 data-parallel ranks"]),
    (f"{AR} --ranks 16 --tp 0 --pp -1", ["--tp 0: must be at least 1", "--pp -1"]),
    (f"{AR} --ranks 16 --group PP", ["--group PP: its groups have one rank"]),
    (f"{AR} --ranks 16 --rank 16", ["--rank 16: allowed is 0 to 15"]),
    (
        "--op AllGather --size 1M --ranks 16 --algorithm tree",
        ["--algorithm tree: allowed for AllGather is auto, ring, pat"],
    ),
    (
        "--op AllGather --size 1M --ranks 16 --algorithm pat",
        ["--algorithm pat: not possible here: needs several servers"],
    ),
    (
        "--op AllReduce --size 1M --ranks 8 --algorithm nvls --gpu-type A100",
        ["not possible here: the GPU's NVSwitches"],
    ),
    (f"{AR} --ranks 8 --algorithm ring --between tree", ["--between tree: is for --algorithm nvls"]),
    (
        "--op AllReduce --size 1M --ranks 8 --algorithm nvls --between tree",
        ["--between tree: the group has one server"],
    ),
    ("--op Broadcast --size 1M --ranks 8 --pxn", ["--pxn: is for AllReduce"]),
    (f"{AR} --ranks 8 --pxn --algorithm tree", ["--pxn: is for rings and AllToAll"]),
    (f"{AR} --ranks 16 --nNodes 3", ["--nNodes 3: times --gpus-per-server 8 must be --ranks"]),
    (f"{AR} --ranks 8 --gpu-type V100 -nv 0", ["--gpu-type V100: allowed is A100", "--nvlink 0:"]),
    (f"{AR} --ranks 8 --distinct", ["--distinct: is for -w"]),
    ("-w missing.txt --ranks 8", ["missing.txt"]),
    (
        f"{AR} --ranks 8 --output a.csv --rings ./a.csv --trees g.csv",
        ["--rings a.csv: is the file of --output too", "--gr"],
    ),
    ("--dialect simai --op Broadcast --size 1M --ranks 8", ["--op Broadcast: allowed is AllReduce"]),
    (
        "--dialect simai --op AllReduce --size 1M --ranks 8 --algorithm tree",
        ["--algorithm tree: allowed is auto, ring, nvls"],
    ),
    ("--dialect simai --op AllToAll --size 1M --ranks 8 --group EP --tp 1 --ep 8", ["makes none with --tp 1"]),
    (f"--dialect simai {AR} --ranks 8 -nv 5", ["--nvlink 5: the original models no time"]),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_bad_input_is_refused_whole_and_writes_nothing(
    words: str, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{words} --groups g.csv") == 2
    errors = capsys.readouterr().err
    assert all(each in errors for each in said), errors
    assert errors.count("error: ") == len(errors.splitlines()) and not [*Path().iterdir()]


def test_a_broken_off_file_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    FILE.write_text("older")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("common.progress.StepProgress.advance", stop)
    assert run("--op AllReduce --size 1M --ranks 8") == 130
    assert FILE.read_text() == "older" and [*Path().iterdir()] == [FILE]


def test_files_with_other_content_are_named_and_none_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["flows", *AR.split(), "--ranks", "8", "--rings", "r.csv", "--trees", "t.csv", "--groups", "g.csv"]
    Path("r.csv").write_text("older")
    Path("g.csv").write_text("older")
    assert cli.main(words) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [each.split(": ")[1:3] for each in errors] == [
        [name, "is there with other content; give --force to overwrite it, or name another file"]
        for name in ("r.csv", "g.csv")
    ]
    assert {path.name: path.read_text() for path in Path().iterdir()} == {"r.csv": "older", "g.csv": "older"}
    assert cli.main([*words, "--force"]) == 0 and FILE.exists()
    assert cli.main(words) == 0, "what is there is the same"


@pytest.mark.parametrize("flag", ["--rings", "--trees", "--groups"])
@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_stdout_has_the_flows_or_the_summary_and_nothing_else(
    flag: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(f"{AR} --ranks 8 --json {flag} {name}") == 2
    captured = capsys.readouterr()
    assert f"error: {flag} {name}: needs a file's name" in captured.err and not captured.out


@pytest.mark.parametrize(
    "words",
    [
        "--op AllToAll --size 1M --ranks 8",
        f"{AR} --ranks 8 --algorithm ring",
        f"{AR} --ranks 16 --pxn",
        f"{AR} --ranks 16 --algorithm nvls --between tree",
    ],
)
def test_bandwidths_that_decide_nothing_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{words} -nv 100 -nic 20") == 2
    said = capsys.readouterr().err
    assert "--nvlink 100: has no effect" in said and "--nic-bandwidth 20: has no effect" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (f"{AR} --ranks 8 --algorithm nvls --gpu-type A100", "NVLS is not used"),
        ("--op AllGather --size 1M --ranks 16 --pxn", "PXN has no effect on AllGather"),
        ("--op AllToAll --size 1M --ranks 16 --pxn", "PXN has no effect on AllToAll"),
    ],
)
def test_the_original_says_which_wishes_it_ignores(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"{words} --dialect simai --json") == 0
    assert any(said in kept for kept in json.loads(capsys.readouterr().out)["kept"])
