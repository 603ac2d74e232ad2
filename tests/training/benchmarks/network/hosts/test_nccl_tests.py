"""nccl-tests' outputs are read, its program is found and run, and its figures stand beside ours."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from training.benchmarks.network.hosts import nccl_tests
from training.benchmarks.network.hosts.nccl_tests import NcclTestsError, Side, Theirs

# Written after the columns of version 2.1x: size count type redop root, then time algbw busbw #wrong twice.
TABLE = """\
# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703
# Collective test starting: all_reduce_perf
#
# Using devices
#  Rank  0 Group  0 Pid   4711 on     gpu01 device  0 [0000:0f:00] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        1024           256     float     sum      -1    11.40    0.09    0.16       0    11.21    0.09    0.16       0
     1048576        262144     float     sum      -1    35.10   29.87   52.28       0    34.80   30.13   52.73     N/A
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 26.3325
#
"""
# Before version 2.1x: no root, and the largest error in place of the number of wrong elements.
OLD = "        1024           256     float     sum     11.40    0.09    0.16  0e+00    11.21    0.09    0.16  0e+00\n"
IN_PLACE_ALONE = "   1024   256   float   sum   -1   N/A   N/A   N/A   N/A   11.21   0.09   0.16   0\n"


def row(size: int, time: float, busbw: float) -> dict[str, object]:
    side = {"time": time, "alg_bw": busbw / 2, "bus_bw": busbw, "nwrong": 0.0}
    return {"size": size, "count": size // 4, "type": "float", "out_of_place": None, "in_place": side}


def test_the_table_is_read() -> None:
    small, large = nccl_tests.parse_table(TABLE)
    assert small == Theirs(
        size_bytes=1024,
        out_of_place=Side(time_us=11.4, busbw_gbps=0.16, wrong=0),
        in_place=Side(time_us=11.21, busbw_gbps=0.16, wrong=0),
    )
    assert large.size_bytes == 1 << 20 and large.in_place == Side(time_us=34.8, busbw_gbps=52.73, wrong=None)
    (old,) = nccl_tests.parse_table(OLD)
    assert old.out_of_place is not None and old.out_of_place.time_us == 11.4
    (alone,) = nccl_tests.parse_table(IN_PLACE_ALONE)
    assert alone.out_of_place is None and alone.in_place is not None
    assert nccl_tests.parse_table("no results\n") == []


def test_the_json_is_read() -> None:
    (found,) = nccl_tests.parse_json(json.dumps({"version": 1, "results": [row(4096, 12.5, 3.0)]}))
    assert found == Theirs(size_bytes=4096, out_of_place=None, in_place=Side(time_us=12.5, busbw_gbps=3.0, wrong=0))
    for text in ("", "[]", '{"results": [{}]}', '{"results": [{"size": 8, "in_place": {"time": 1}}]}'):
        with pytest.raises(NcclTestsError, match="another form than expected"):
            nccl_tests.parse_json(text)


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ([8, 16, 32], [["-b", "8", "-e", "32", "-f", "2"]]),
        ([1024, 8192, 65536], [["-b", "1024", "-e", "65536", "-f", "8"]]),
        (
            [8, 24, 32],
            [
                ["-b", "8", "-e", "8", "-f", "2"],
                ["-b", "24", "-e", "24", "-f", "2"],
                ["-b", "32", "-e", "32", "-f", "2"],
            ],
        ),
        ([64], [["-b", "64", "-e", "64", "-f", "2"]]),
    ],
)
def test_sizes_are_asked_for_in_ranges(sizes: list[int], options: list[list[str]]) -> None:
    assert nccl_tests.ranges(sizes) == options


def program(folder: Path, *, results: object, code: int = 0, knows_json: bool = False) -> Path:
    """A stand-in of all_reduce_perf: its options and outputs, with made-up figures."""
    folder.mkdir()
    file = folder / "all_reduce_perf"
    file.write_text(
        "#!/usr/bin/env python3\n"
        "import sys\n"
        f"help_text, knows_json, code = '-J file' if {knows_json} else 'no json', {knows_json}, {code}\n"
        "if '--help' in sys.argv: sys.exit(print(help_text))\n"
        "if not knows_json and '-J' in sys.argv: sys.exit('invalid option')\n"
        f"results = {results!r}\n"
        "open(sys.argv[sys.argv.index('-J') + 1], 'w').write(results) if knows_json else print(results)\n"
        "print('out of memory', file=sys.stderr) if code else None\n"
        "sys.exit(code)\n"
    )
    file.chmod(0o755)
    return file


def measured(file: Path, sizes: list[int]) -> list[Theirs]:
    chosen = nccl_tests.options_of(dtype="float32", warmup=1, iterations=2)
    return nccl_tests.run(file, sizes, gpus=2, chosen=chosen, timeout_s=20.0)


def test_a_program_is_found_run_and_read(tmp_path: Path) -> None:
    plain = program(tmp_path / "plain", results=TABLE)
    assert nccl_tests.find("all_reduce", str(plain.parent)) == plain
    assert [each.size_bytes for each in measured(plain, [1024, 1 << 20])] == [1024, 1 << 20]
    with_json = program(tmp_path / "json", results=json.dumps({"results": [row(64, 1.0, 2.0)]}), knows_json=True)
    assert [each.size_bytes for each in measured(with_json, [64])] == [64]


def test_what_is_absent_or_fails_is_said(tmp_path: Path) -> None:
    with pytest.raises(NcclTestsError, match=r"all_reduce_perf is not in .*set nccl_tests to its build folder"):
        nccl_tests.find("all_reduce", str(tmp_path))
    failing = program(tmp_path / "failing", results="", code=3)
    with pytest.raises(NcclTestsError, match="exit code 3: out of memory"):
        measured(failing, [8])
    silent = program(tmp_path / "silent", results="nothing")
    with pytest.raises(NcclTestsError, match="printed no results"):
        measured(silent, [8])


def step(size: int, busbw: float, *, in_place: bool = False, **more: object) -> dict[str, object]:
    return {"size_bytes": size, "in_place": in_place, "busbw_GBps": busbw, "time_us": {"p50": 1.0}, **more}


def test_each_of_our_rows_stands_beside_its_own_variant() -> None:
    """Both forms, every root (padded in the JSON, as writeBenchmarkLinePreamble prints it), and after compute."""
    both = json.dumps(
        {"results": [row(1024, 1.0, 4.0) | {"root": "    -1"} | {"out_of_place": row(1, 1.0, 2.0)["in_place"]}]}
    )
    ours = [step(1024, 2.0), step(1024, 2.0, in_place=True), step(1024, 1.0, after_compute_ms=10)]
    ratios, sentences = nccl_tests.beside(ours, nccl_tests.parse_json(both))
    assert ratios == {"1K": 1.0, "1K in place": 0.5} and len(sentences) == 2
    rooted = json.dumps({"results": [row(1024, 1.0, 4.0 + root) | {"root": f"{root:6}"} for root in range(3)]})
    ours = [step(1024, 8.0, in_place=True, root=root) for root in range(3)]
    ratios, _ = nccl_tests.beside(ours, nccl_tests.parse_json(rooted))
    assert ratios == {"1K root 0": 2.0, "1K root 1": 8 / 5, "1K root 2": 8 / 6}
    table = "".join(line.replace(" -1 ", f" {root} ") for root in (0, 1) for line in [IN_PLACE_ALONE])
    assert [each.root for each in nccl_tests.parse_table(table)] == [0, 1]
    assert [each.root for each in nccl_tests.parse_table(TABLE + OLD)] == [None] * 3
    # The old table has no root: of several roots it is nobody's, of one it is this one's.
    ours = [step(1024, 8.0, in_place=True, root=root) for root in range(3)]
    unknown = [replace(each, root=None) for each in nccl_tests.parse_json(rooted)]
    assert nccl_tests.beside(ours, unknown)[0] == {}
    assert nccl_tests.beside(ours[2:], unknown[:1])[0] == {"1K": 2.0}
    # One root alone, the usual one, has no name in our row.
    assert nccl_tests.beside([step(1024, 4.0, in_place=True)], nccl_tests.parse_json(rooted))[0] == {"1K": 1.0}
