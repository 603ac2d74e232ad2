"""Chakra traces: ours come back as the rows they were, with the right dependencies; those of Chakra's tools load."""

import gzip
import json
import lzma
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chakra.schema.protobuf import et_def_pb2 as schema
from chakra.src.converter.pytorch_node import PyTorchNode
from chakra.src.converter.text_converter import TextConverter
from chakra.src.generator import generator
from chakra.src.third_party.utils.protolib import decodeMessage, encodeMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiers import samples
from tests.workloads.test_full_form import ITEM
from workloads.cli import main
from workloads.formats.chakra import command, messages
from workloads.formats.chakra.reading import read
from workloads.formats.chakra.writing import trace
from workloads.library import Block, CommGroup, CommType, LogItem, Workload, WorkloadArgs, generate
from workloads.rows.ops import EPOCH_END, gemm
from workloads.rows.placement import axes, group_of, moved
from workloads.rows.ranks import Ranks

GEMM = st.builds(
    lambda shapes, time, stage: LogItem(CommType.computation, msg_size=shapes, elapsed_time=time, stage=stage),
    st.tuples(st.tuples(st.integers(1, 9), st.integers(1, 9), st.just(7)), st.tuples(st.just(7), st.integers(1, 99))),
    st.none() | st.integers(0, 10**12) | st.floats(0, 1e12),
    st.sampled_from(["forward.x", ""]),
)


def nodes(path: Path) -> Iterator[schema.Node]:
    """By Chakra's own library, not by ours."""
    with path.open("rb") as file:
        assert decodeMessage(file, schema.GlobalMetadata())
        while decodeMessage(file, node := schema.Node()):
            yield node


def attributes(node: schema.Node) -> dict[str, object]:
    return {each.name: getattr(each, each.WhichOneof("value")) for each in node.attr}


@settings(
    max_examples=len(samples(60, 1000)), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(rows=st.lists(ITEM | GEMM, min_size=1, max_size=8))
def test_rows_come_back_from_a_trace(rows: list[LogItem], tmp_path: Path) -> None:
    path = tmp_path / "t.et"
    path.write_bytes(b"".join(trace(rows, 0, {}, schema)))
    found = read(path, {}, schema)
    assert found.rows == rows and found.own
    assert [row.to_csv() for row in found.rows] == [row.to_csv() for row in rows], "1 and 1.0 are equal"


def row(overlap: int | None) -> LogItem:
    return LogItem(CommType.all_reduce, CommGroup.tp_group, 8, 64, "forward", overlap=overlap)


def test_dependencies_are_what_the_program_waits_for(tmp_path: Path) -> None:
    """Row 1 overlaps 2 and 3 and is waited for by 4; nothing waits for 4; None blocks."""
    path = tmp_path / "t.et"
    path.write_bytes(b"".join(trace([row(0), row(2), row(None), row(0), row(-1), row(0), row(0)], 0, {}, schema)))
    found = [(list(node.data_deps), list(node.ctrl_deps)) for node in nodes(path)]
    assert found == [([], []), ([0], []), ([], [0]), ([2], []), ([1, 3], []), ([], [1, 3]), ([5], [])]


def test_a_computation_has_its_work_and_its_time(tmp_path: Path) -> None:
    item = gemm("forward", (4, 2, 8), (8, 16))
    path = tmp_path / "t.et"
    path.write_bytes(
        b"".join(trace([LogItem(item.comm_type, msg_size=item.msg_size, elapsed_time=7500)], 0, {}, schema))
    )
    (node,) = nodes(path)
    assert node.type == schema.COMP_NODE and node.duration_micros == 8
    assert attributes(node)["num_ops"] == 2 * 8 * 8 * 16
    assert attributes(node)["tensor_size"] == 2 * (64 + 128 + 128)


def test_groups_follow_to_the_other_ranks() -> None:
    assert axes(Ranks.of([0, 1, 4, 5])) == ((1, 2), (4, 2)) and axes(Ranks.of([3])) == ()
    assert axes(Ranks.of(range(0, 64, 8))) == ((8, 8),)
    assert list(group_of(7, Ranks.of([0, 1, 4, 5]))) == [2, 3, 6, 7]
    assert list(group_of(13, Ranks.of([8, 12]))) == [9, 13]
    send = LogItem(CommType.isend, CommGroup.pp_group, 2, 8, ranks=Ranks.of([0, 8]), peer=8)
    assert (moved(send, 0, 3).peer, list(moved(send, 0, 3).ranks or ())) == (11, [3, 11])
    root = LogItem(CommType.broadcast, CommGroup.tp_group, 4, 8, ranks=Ranks.of(range(4)), peer=2)
    assert moved(root, 0, 5).peer == 6
    with pytest.raises(ValueError, match="no product of axes"):
        axes(Ranks.of([0, 1, 5]))


def test_every_rank_of_a_job_gets_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = WorkloadArgs(world_size=16, tensor_model_parallel_size=2, pipeline_model_parallel=2, num_layers=4,
                        num_attention_heads=16, global_batch=16)  # fmt: skip
    files = []
    for stage in range(2):
        files.append(str(tmp_path / f"{stage}.csv"))
        generate(args, dialect="framework", pp_stage=stage).save(files[-1])
    folder = tmp_path / "traces"
    assert main(["export", *files, "--chakra", str(folder), "--world_size", "16"]) == 0
    assert len(list(folder.glob("workload.*.et"))) == 16
    groups = json.loads((folder / "comm_groups.json").read_text())
    calls: dict[int, list[object]] = {}
    sent: dict[tuple[object, object], list[object]] = {}
    received: dict[tuple[object, object], list[object]] = {}
    for rank in range(16):
        for node in nodes(folder / f"workload.{rank}.et"):
            has = attributes(node)
            if node.type == schema.COMM_COLL_NODE:
                assert rank in groups[has["pg_name"]]
                calls.setdefault(rank, []).append((has["pg_name"], has["comm_size"], has["comm_type"]))
            elif node.type in (schema.COMM_SEND_NODE, schema.COMM_RECV_NODE):
                pairs = sent if node.type == schema.COMM_SEND_NODE else received
                pairs.setdefault((has["comm_src"], has["comm_dst"]), []).append(has["comm_size"])
    assert sent == received and sent
    for name, ranks in groups.items():
        seen = {rank: [call for call in calls[rank] if call[0] == name] for rank in ranks}  # type: ignore[index]
        assert all(each == seen[ranks[0]] for each in seen.values()), "all members of a group call the same"
    others = [folder / f"workload.{rank}.et" for rank in (3, 9)]
    before = [path.read_bytes() for path in others]
    for path in others:
        path.write_bytes(b"other")
    (folder / "workload.0.et").rename(tmp_path / "moved")
    assert main(["export", *files, "--chakra", str(folder), "--world_size", "16"]) == 2
    said = capsys.readouterr().err
    assert all(f"{path}: is there with other content" in said for path in others), "all of the set are told"
    assert not (folder / "workload.0.et").exists()
    (tmp_path / "moved").rename(folder / "workload.0.et")
    for path, data in zip(others, before, strict=True):
        path.write_bytes(data)
    for stage, file in enumerate(files):
        back = tmp_path / "back.csv"
        assert main(["import", str(folder / f"workload.{8 * stage}.et"), "--output", str(back), "--force"]) == 0
        assert list(Workload.load(back)[0]) == list(Workload.load(file)[0])


def test_what_cannot_be_exported_is_named_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = LogItem(CommType.all_reduce, CommGroup.tp_group, 3, 8, ranks=Ranks.of([0, 1, 5]))
    file, folder = tmp_path / "w.csv", tmp_path / "traces"
    Workload([odd]).save(file)
    assert main(["export", str(file), "--chakra", str(folder), "--world_size", "8"]) == 2
    assert "no product of axes" in capsys.readouterr().err
    assert main(["export", str(file), str(file), "--chakra", str(folder)]) == 2
    assert "as another file" in capsys.readouterr().err
    assert main(["export", str(file), str(file), "--chakra", str(folder), "--world_size", "7"]) == 2
    Workload([LogItem(CommType.all_reduce, CommGroup.tp_group, 2, 8, ranks=Ranks(0, 2, 2))]).save(file)
    for world, rank in ((6, 7), (3, 3), (1, 2)):
        assert main(["export", str(file), "--chakra", str(folder), "--world_size", str(world)]) == 2
        assert f"{file}: beside group 0:2:2 there is one with rank {rank}" in capsys.readouterr().err
    assert main(["export", str(file), "--chakra", str(folder), "--world_size", "0"]) == 2
    assert "--world_size 0" in capsys.readouterr().err
    Workload([Block([odd], 10**9)]).save(file)
    assert main(["export", str(file), "--chakra", str(folder)]) == 2
    assert "more than" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "chakra.schema.protobuf", None)
    assert main(["export", str(file), "--chakra", str(folder)]) == 1
    assert "pip install --no-deps -r requirements/chakra.txt" in capsys.readouterr().err and not folder.exists()


def test_a_trace_of_chakras_converter_loads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = tmp_path / "w.txt"
    text.write_text(
        "DATA\n2\nconv1 -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1000 5\nfc -1 7 NONE 0 7 NONE 0 7 ALLREDUCE 2000 7\n"
    )
    TextConverter(str(text), str(tmp_path / "t"), num_npus=2, num_passes=1).convert()
    assert main(["import", str(tmp_path / "t.0.et"), "--output", str(tmp_path / "back.csv")]) == 0
    workload, _ = Workload.load(tmp_path / "back.csv")
    assert workload.iterations == 1
    sizes = [item.msg_size for item in workload if item.comm_type is CommType.all_reduce]
    assert sorted(map(int, sizes)) == [1000, 2000]  # type: ignore[arg-type]
    times = [item.elapsed_time for item in workload if item.comm_type is CommType.computation]
    assert sorted(map(int, times)) == [5000, 5000, 7000, 7000, 7000]  # type: ignore[arg-type]


def test_a_trace_of_chakras_generator_loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    generator.one_comm_coll_node_allgather(2, 4096)
    generator.one_comm_send_node(2, 512)
    generator.two_comp_nodes_dependent(1, 5)
    (tmp_path / "comm_groups.json").write_text('{"": [0, 1]}')
    for name in ("ALL_GATHER", "one_comm_send_node", "two_comp_nodes_dependent"):
        assert main(["import", f"{name}.0.et", "--output", f"{name}.csv"]) == 0
    gather = list(Workload.load("ALL_GATHER.csv")[0])[1]
    assert (gather.comm_type, gather.comm_group, gather.msg_size) == (CommType.all_gather, CommGroup.all, 2 * 4096)
    assert gather.ranks == Ranks.of([0, 1]) and gather.overlap == -1
    assert list(Workload.load("one_comm_send_node.csv")[0])[1].comm_type is CommType.isend
    assert len(Workload.load("two_comp_nodes_dependent.csv")[0]) == 4


def ring_bytes(has: dict[str, object], ranks: int) -> float:
    """What a rank sends for a node in ASTRA-sim's ring (collective/Ring.cc of ASTRA-sim 2): steps times message."""
    size = float(has["comm_size"])  # type: ignore[arg-type]
    message = size if has["comm_type"] == schema.ALL_GATHER else size / ranks
    return message * (ranks - 1) * (2 if has["comm_type"] == schema.ALL_REDUCE else 1)


def test_astra_sims_ring_sends_the_bytes_that_nccl_sends_for_a_row(tmp_path: Path) -> None:
    """Closed forms of nccl-tests' doc/PERFORMANCE.md for the full buffer S: S (n-1)/n, twice that for all_reduce."""
    full, ranks = 3 << 20, 6
    kinds = ("all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce", "all_to_all_single")
    rows = [LogItem(CommType[kind], CommGroup.dp_group, ranks, full, ranks=Ranks(0, 1, ranks)) for kind in kinds]
    path = tmp_path / "t.et"
    path.write_bytes(b"".join(trace(rows, 0, {}, schema)))
    for kind, node in zip(kinds, nodes(path), strict=True):
        sent = full * (ranks - 1) / ranks * (2 if kind == "all_reduce" else 1)
        assert ring_bytes(attributes(node), ranks) == sent, kind
    assert read(path, {}, schema).rows == rows


def test_a_gathers_size_is_what_chakras_converter_counts(tmp_path: Path) -> None:
    """Of a call of torch it adds the inputs up: the shard of a gather, the whole of a scatter."""
    shard = [1, 2, 0, 4096, 2, "cuda:0"]  # an id, storage, offset, elements, bytes an element, device
    call = PyTorchNode.__new__(PyTorchNode)
    call.inputs = {"values": [shard], "shapes": [[4096]], "types": ["Tensor(c10::BFloat16)"]}
    item = LogItem(CommType.all_gather_into_tensor, CommGroup.dp_group, 8, 8 * 4096 * 2, ranks=Ranks(0, 1, 8))
    path = tmp_path / "t.et"
    path.write_bytes(b"".join(trace([item], 0, {}, schema)))
    (node,) = nodes(path)
    assert attributes(node)["comm_size"] == call.comm_size == 8192


def test_a_share_of_unknown_ranks_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    generator.one_comm_coll_node_allgather(2, 4096)
    words = ["import", "ALL_GATHER.0.et", "--output", "back.csv"]
    assert main(words) == 2
    assert "one rank's share" in capsys.readouterr().err and not Path("back.csv").exists()
    assert main([*words, "--world_size", "0"]) == 2
    assert main([*words, "--world_size", "2"]) == 0
    assert list(Workload.load("back.csv")[0])[1].msg_size == 8192


def test_a_node_of_any_name_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "t.et"
    with path.open("wb") as file:
        encodeMessage(file, schema.GlobalMetadata(version="1.0.0"))
        encodeMessage(file, schema.Node(id=1, name="conv\t1\r\nX,\x1b[31m", type=schema.COMP_NODE))
    assert main(["import", str(path), "--output", str(tmp_path / "w.csv")]) == 0
    assert list(Workload.load(tmp_path / "w.csv")[0])[1].stage == "conv 1  X; [31m"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"stage": "a,b"}, "stage 'a,b' has no place in a CSV"),
        ({"stage": "\x1b[2J"}, "stage is '\\x1b[2J', not printable text"),
        ({"comm_group_size": 0}, "comm_group_size is '0', not a whole number of 1 or more"),
        ({"elapsed_time": 1 << 60}, "_elapsed_time is '1152921504606846976', not a number"),
        ({"micro_batch": -5}, "micro_batch is '-5', not a whole number from 0 on"),
    ],
)
def test_a_row_that_no_csv_has_is_refused_before_it_is_written(
    more: dict[str, int | str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.et"
    with path.open("wb") as file:
        encodeMessage(file, schema.GlobalMetadata(version="0.0.4"))
        made = schema.Node(id=1, name="x", type=schema.COMM_COLL_NODE)
        for name, value in ({"clusterdyno_type": "all_reduce", "comm_size": 8} | more).items():
            kind = "string_val" if isinstance(value, str) else "int64_val"
            made.attr.append(schema.AttributeProto(name=name, **{kind: value}))
        encodeMessage(file, made)
    assert main(["import", str(path), "--output", str(tmp_path / "w.csv")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "w.csv").exists()


AICB = Path(__file__).resolve().parents[3] / "data" / "aicb"
LAYOUT = json.loads((AICB / "unit" / "rank_groups_tp-cp-ep-dp-pp.json").read_text())


def test_groups_of_aicbs_form_are_those_that_aicb_makes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By AICB's own RankGenerator, recorded for 16 ranks of tp 2, pp 2 and ep 2."""
    args = WorkloadArgs(
        world_size=16, tensor_model_parallel_size=2, pipeline_model_parallel=2, expert_model_parallel_size=2,
        num_layers=4, num_attention_heads=16, global_batch=16, moe_enable=True, num_experts=4,
        enable_sequence_parallel=True,
    )  # fmt: skip
    files = [str(tmp_path / f"stage{stage}.csv") for stage in range(2)]
    for stage, file in enumerate(files):
        generate(args, dialect="aicb", pp_stage=stage).save(file)
    folder = tmp_path / "traces"
    assert main(["export", *files, "--chakra", str(folder), "--world_size", "16"]) == 0
    groups = json.loads((folder / "comm_groups.json").read_text())
    recorded = LAYOUT["ws16_tp2_pp2_ep2_cp1"] | {"ep": LAYOUT["ws16_tp2_pp2_ep2_cp1"]["ind_ep"]}
    sent, received = Counter[object](), Counter[object]()
    for rank in range(16):
        for node in nodes(folder / f"workload.{rank}.et"):
            has = attributes(node)
            if node.type == schema.COMM_COLL_NODE:
                name = str(has["pg_desc"]).removesuffix("_group")
                (mine,) = (each for each in recorded[name] if rank in each)
                assert groups[has["pg_name"]] == mine, (rank, name)
            elif node.type in (schema.COMM_SEND_NODE, schema.COMM_RECV_NODE):
                pairs = sent if node.type == schema.COMM_SEND_NODE else received
                pairs[has["comm_src"], has["comm_dst"]] += 1
    assert sent == received and set(sent) == {(a, b) for a in range(16) for b in range(16) if abs(a - b) == 8}
    back = tmp_path / "back.csv"
    assert main(["import", str(folder / "workload.8.et"), "--output", str(back)]) == 0
    assert back.read_bytes() == Path(files[1]).read_bytes()
    assert main(["export", files[0], "--chakra", str(folder), "--world_size", "16"]) == 2
    assert "has 2 pipeline stages" in capsys.readouterr().err
    assert main(["export", *files, "--chakra", str(folder), "--world_size", "32"]) == 2
    assert "is for 16 ranks, --world_size is 32" in capsys.readouterr().err


def test_a_file_of_aicb_itself_has_its_groups_by_its_rows_or_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "traces"
    file, experts = (tmp_path / f"{name}.csv" for name in ("gpt7b_tp2_pp1_ws8", "mixtral8x7b_tp2_ep4_ws16_sp_do"))
    for path in (file, experts):
        path.write_bytes(lzma.decompress((AICB / "csv" / f"{path.name}.xz").read_bytes()))
    assert main(["export", str(file), "--chakra", str(folder), "--world_size", "8"]) == 0
    found = sorted(json.loads((folder / "comm_groups.json").read_text()).values())
    assert found == [[0, 1], [0, 2, 4, 6], [1, 3, 5, 7], [2, 3], [4, 5], [6, 7]]
    assert main(["export", str(experts), "--chakra", str(tmp_path / "no"), "--world_size", "16"]) == 2
    assert "rows of ep_group state no size" in capsys.readouterr().err and not (tmp_path / "no").exists()


def test_waiting_of_a_foreign_trace_is_its_dependencies(tmp_path: Path) -> None:
    path = tmp_path / "t.et"
    with path.open("wb") as file:
        encodeMessage(file, schema.GlobalMetadata(version="1.0.0"))
        for number, needs in enumerate(([], [], [0], [1, 2])):
            node = schema.Node(id=number, name="all,reduce", type=schema.COMM_COLL_NODE, data_deps=needs)
            node.attr.append(schema.AttributeProto(name="comm_type", int64_val=schema.ALL_REDUCE))
            node.attr.append(schema.AttributeProto(name="comm_size", uint64_val=8))
            encodeMessage(file, node)
    found = read(path, {}, schema)
    assert [item.overlap for item in found.rows] == [None, 1, 1, 0, -1, None] and found.rows[0] == EPOCH_END
    assert found.rows[1].stage == "all;reduce"


def _message(body: bytes) -> bytes:
    """A message after its length, a varint."""
    length, left = bytearray(), len(body)
    while left >= 0x80:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*length, left]) + body


_NODE = _message(b"\x18\x04")  # of a type


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_trace_is_read_within_its_bounds(
    pack: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.et"

    def count(data: bytes) -> int:
        path.write_bytes(pack(data))
        with messages.unpacked(path) as source:
            return sum(1 for _ in messages.nodes(source, schema))

    monkeypatch.setattr(messages, "MOST_NODES", 20)
    monkeypatch.setattr(messages, "LARGEST_FILE", 1000)
    assert count(b"\0" + 20 * _NODE) == 20
    with pytest.raises(messages.BrokenTraceError, match="more than 20 nodes"):
        count(b"\0" + 21 * _NODE)
    large = _message(b"\x12" + _message(b"x" * 331))  # a name; 334 bytes
    assert count(_message(b"") + 2 * large) == 2
    with pytest.raises(messages.BrokenTraceError, match="more than 1000 bytes"):
        count(b"\0" + 3 * large)


def test_a_packed_trace_is_unpacked_one_message_at_a_time(tmp_path: Path) -> None:
    """64 MiB that gzip packs into 64 KiB; and a message of more than may be, which is not waited for."""
    path = tmp_path / "t.et"
    path.write_bytes(gzip.compress(b"\0" + 64 * _message(b"\x12" + _message(bytes(1 << 20)))))
    assert path.stat().st_size < 1 << 17
    tracemalloc.start()
    try:
        with messages.unpacked(path) as source:
            assert sum(len(node.name) for node in messages.nodes(source, schema)) == 64 << 20
        with path.open("wb") as file:
            file.write(b"\0\x81\x80\x80\x20")  # 64 MiB and a byte
            file.truncate(1 << 30)
        with messages.unpacked(path) as source, pytest.raises(messages.BrokenTraceError, match="ends within message 1"):
            list(messages.nodes(source, schema))
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no node"),
        (gzip.compress(b"\0" + 3 * _NODE, mtime=0)[:-12], "t.et: "),
        (b"\x00\x7f\x01", "cut off"),
        (b"\x00\x03\xff\xff\xff", "message 1"),
        (b"\xff" * 20, "length"),
        (b"\x00" + b"\xff" * 8 + b"\x7f", "cut off"),
        (gzip.compress(bytes(1 << 20), mtime=0), "message 1 is empty"),
        (b"\x1f\x8b broken", "t.et"),
        (b"\x00\x04\x18\x07\x08\x01", "node 1 is no row: comm_type"),
    ],
)
def test_what_is_no_trace_is_refused(
    data: bytes, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "t.et"
    path.write_bytes(data)
    assert main(["import", str(path), "--output", str(tmp_path / "w.csv")]) == 2
    assert said in capsys.readouterr().err and not (tmp_path / "w.csv").exists()
    for groups in ("[]", "[" * 100_000):
        (tmp_path / "comm_groups.json").write_text(groups)
        assert main(["import", str(path), "--output", str(tmp_path / "w.csv")]) == 2
        assert "names of groups" in capsys.readouterr().err
    monkeypatch.setattr(command, "LARGEST_GROUPS", 10)
    assert main(["import", str(path), "--output", str(tmp_path / "w.csv")]) == 2
    assert "more than 10 bytes" in capsys.readouterr().err
