"""Chakra traces and AICB's CSVs give the times that the same operations have in SimAI's text."""

import gzip
from pathlib import Path

import pytest
from chakra.schema.protobuf import et_def_pb2 as schema
from chakra.src.third_party.utils.protolib import encodeMessage

from tests.simulation.analytical.asking import CLUSTER, ask, row, write
from workloads.cli import main
from workloads.library import Block, CommGroup, CommType, LogItem, Workload, WorkloadArgs, generate
from workloads.rows.ops import EPOCH_END

GIB = 1 << 30
EMPTY = b"\0"  # a message of nothing, after its length
Value = int | str | bool


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def node(number: int, kind: str, micros: int = 0, **attributes: Value) -> schema.Node:
    made = schema.Node(id=number, name=f"node {number}", type=schema.NodeType.Value(kind), duration_micros=micros)
    for name, value in attributes.items():
        field = {bool: "bool_val", int: "int64_val", str: "string_val"}[type(value)]
        made.attr.append(schema.AttributeProto(name=name, **{field: value}))
    return made


def trace(path: Path, *nodes: schema.Node, version: str = "0.0.4") -> Path:
    with gzip.open(path, "wb") if path.suffix == ".gz" else path.open("wb") as file:
        for message in (schema.GlobalMetadata(version=version), *nodes):
            encodeMessage(file, message)
    return path


def collective(number: int, name: str, size: int, group: str = "") -> schema.Node:
    kind = schema.CollectiveCommType.Value(name)
    return node(number, "COMM_COLL_NODE", comm_type=kind, comm_size=size, pg_name=group)


def test_a_chakra_trace_may_begin_with_any_length(tmp_path: Path) -> None:
    """The first byte is the length of the first message; 91 is a bracket, as AICB's CSV may have one there."""
    path = trace(tmp_path / "t.et", node(1, "COMP_NODE", 300), version="0" * 89)
    assert path.read_bytes()[:1] == b"["
    assert ask("-w", str(path), "-g", "8", *CLUSTER, "--json").summary["computation_us"] == 300


@pytest.mark.parametrize("name", ["rank0.et", "rank0.et.gz"])
def test_a_chakra_trace_counts_as_the_same_rows(name: str, tmp_path: Path) -> None:
    path = trace(
        tmp_path / name,
        node(1, "COMP_NODE", 300),
        node(2, "COMP_NODE", 999, is_cpu_op=True),
        collective(3, "ALL_REDUCE", GIB, "7"),
        collective(4, "REDUCE_SCATTER", GIB, "dp"),
        collective(5, "BROADCAST", GIB),
        node(6, "METADATA_NODE"),
    )
    groups = ("--group", "7=TP", "--group", "dp=DP", "--tp", "8")
    answer = ask("-w", str(path), "-g", "64", *CLUSTER, *groups, "--json")
    assert answer.code == 0 and "(none) are taken for all GPUs" in answer.err
    text = write(
        tmp_path / "w",
        [row("ALLREDUCE 1073741824"), row("REDUCESCATTER_DP 1073741824"), row("BROADCAST_ALL 1073741824")],
        tp=8,
    )
    same = ask("-w", str(text), "-g", "64", *CLUSTER, "--json").summary
    assert answer.summary["exposed_us"] == same["exposed_us"] and same["exposed_us"]["TP"] > 0
    assert answer.summary["computation_us"] == 300


def test_the_size_of_a_gather_is_one_ranks_share(tmp_path: Path) -> None:
    """As in ASTRA-sim, whose ring takes n times of it; SimAI's text says the full tensor."""
    path = trace(tmp_path / "t.et", collective(1, "ALL_GATHER", GIB // 8, "7"), collective(2, "ALL_GATHER", GIB // 64))
    answer = ask("-w", str(path), "-g", "64", *CLUSTER, "--group", "7=TP", "--tp", "8", "--json")
    text = write(tmp_path / "w", [row(f"ALLGATHER {GIB}"), row(f"ALLGATHER_ALL {GIB}")], tp=8)
    same = ask("-w", str(text), "-g", "64", *CLUSTER, "--json").summary
    assert answer.summary["exposed_us"] == same["exposed_us"] and same["exposed_us"]["TP"] > 0


def test_an_exported_workload_counts_as_its_csv(tmp_path: Path) -> None:
    """Its nodes name their groups, of which the first is no group of all GPUs."""
    args = WorkloadArgs(world_size=8, tensor_model_parallel_size=2, num_attention_heads=16, num_layers=2,
                        enable_sequence_parallel=True, use_distributed_optimizer=True, global_batch=4)  # fmt: skip
    rows = [item for item in generate(args, dialect="aicb").epoch(1) if item.comm_type is not CommType.epoch_end]
    Workload([EPOCH_END, *rows, EPOCH_END]).save(tmp_path / "gpt.csv")
    assert main(["export", str(tmp_path / "gpt.csv"), "--chakra", str(tmp_path / "traces"), "--world_size", "8"]) == 0
    asked = ("-g", "8", *CLUSTER, "--json")
    exported = ask("-w", str(tmp_path / "traces" / "workload.0.et"), *asked)
    assert exported.code == 0 and "taken for all GPUs" not in exported.err
    times = ask("-w", str(tmp_path / "gpt.csv"), *asked).summary["exposed_us"]
    assert times["TP"] > 0 and times["DP"] > 0
    assert exported.summary["exposed_us"] == pytest.approx(times)


def test_a_node_of_any_name_is_one_row(tmp_path: Path) -> None:
    odd = node(1, "COMP_NODE", 300)
    odd.name = "conv\t1\r\n2 \x1b[31m"
    assert ask("-w", str(trace(tmp_path / "t.et", odd)), "-g", "8", *CLUSTER, "--json").summary["computation_us"] == 300


def test_sends_between_stages_are_the_pipelines_time(tmp_path: Path) -> None:
    path = trace(
        tmp_path / "t.et", node(9, "COMP_NODE"), *(node(n, "COMM_SEND_NODE", comm_size=48_500_000) for n in range(4))
    )
    asked = ("-w", str(path), "-g", "16", *CLUSTER, "--tp", "8", "--json")
    assert ask(*asked).code == 2
    assert ask(*asked, "--pp", "2").summary["pipeline_us"] == pytest.approx(2 * 4 * 1000)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (EMPTY + b"\x7f\x01", "cut off"),
        (EMPTY + b"\x03\xff\xff\xff", "message 1"),
        (b"\xff" * 20, "length"),
        (b"\x1f\x8b broken", "cannot be read"),
        (gzip.compress(b"x", mtime=0)[:10] + b"\xff" * 20, "cannot be read"),
        (EMPTY, "no rows"),
    ],
    ids=["cut off", "message too long", "length too long", "broken header", "broken gzip", "no rows"],
)
def test_what_is_no_trace_is_refused(data: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.et"
    path.write_bytes(data)
    answer = ask("-w", str(path), "-g", "8", *CLUSTER)
    assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err
    assert [file.name for file in tmp_path.iterdir()] == ["t.et"]


def test_sizes_beyond_64_bits_and_groups_of_nobody_are_refused(tmp_path: Path) -> None:
    gather = collective(1, "ALL_GATHER", 1 << 62)
    nobody = collective(1, "ALL_REDUCE", 8)
    nobody.attr.extend(
        node(1, "COMM_COLL_NODE", clusterdyno_type="all_reduce", pg_desc="tp_group", comm_group_size=0).attr
    )
    for made, said in ((gather, "the bytes are 36893488147419103232"), (nobody, "the workload's tp is 0")):
        answer = ask("-w", str(trace(tmp_path / "t.et", made)), "-g", "8", *CLUSTER)
        assert answer.code == 2 and said in answer.err


def test_a_group_of_any_name_is_said_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.et", collective(1, "ALL_REDUCE", 8, "\x1b[2J"))
    answer = ask("-w", str(path), "-g", "8", *CLUSTER, "--json")
    assert answer.code == 0 and "process groups \\x1b[2J are taken" in answer.err


def test_a_group_that_is_none_is_refused(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.et", node(1, "COMP_NODE", 1))
    answer = ask("-w", str(path), "-g", "8", *CLUSTER, "--group", "7=XY", "--group", "TP")
    assert answer.code == 2 and answer.err.count("--group") == 2
    text = write(tmp_path / "w", [row()])
    assert ask("-w", str(text), "-g", "8", *CLUSTER, "--group", "7=TP").code == 2


def test_without_the_extra_a_trace_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "chakra.schema.protobuf", None)
    path = trace(tmp_path / "t.et", node(1, "COMP_NODE", 1))
    answer = ask("-w", str(path), "-g", "8", *CLUSTER)
    assert answer.code == 1 and "requirements/chakra.txt" in answer.err


def test_a_csv_of_our_own_counts_as_the_same_rows(tmp_path: Path) -> None:
    """tp 2, pp 2 on 8 GPUs: groups, micro-batches and transfers are found in the file and its parameters."""
    args = WorkloadArgs(
        world_size=8, tensor_model_parallel_size=2, pipeline_model_parallel=2, num_attention_heads=16, global_batch=8
    )
    workload = generate(args, dialect="aicb")
    path = tmp_path / "gpt.csv"
    workload.save(path)
    answer = ask("-w", str(path), "-g", "8", "-g_p_s", "4", "-n_p_s", "4", "-nv", "360", "-nic", "48.5", "--json")
    assert answer.code == 0, answer.err
    rows = []
    sends = []
    for item in workload.epoch(1):
        bytes_ = int(item.comm_bytes)
        if item.comm_type is CommType.isend:
            sends.append(bytes_)
        elif item.is_communication and item.comm_type not in (CommType.irecv, CommType.barrier):
            assert item.comm_group is not None
            group = {"tp_group": "TP", "dp_group": "DP", "embedding_group": "EMBEDDING"}[item.comm_group.name]
            cell = f"{item.comm_type.name.upper().replace('_', '')}_{group} {bytes_}"
            at = 0 if item.stage.startswith("forward") else 1 if item.stage.startswith("backward") else 2
            phases = [cell if phase == at else "NONE 0" for phase in range(3)]
            rows.append(row(phases[0], phases[1], phases[2]))
    text = write(tmp_path / "w", rows, tp=2, pp=2, ga=len(sends), pp_comm=sends[0])
    same = ask("-w", str(text), "-g", "8", "-g_p_s", "4", "-n_p_s", "4", "-nv", "360", "-nic", "48.5", "--json")
    ours, theirs = answer.summary, same.summary
    assert ours["exposed_us"]["TP"] > 0 and ours["exposed_us"]["DP"] > 0 and ours["pipeline_us"] > 0
    assert ours == theirs


def test_a_csv_without_parameters_takes_the_sizes_of_its_rows(tmp_path: Path) -> None:
    items = [
        LogItem(CommType.epoch_end),
        LogItem(CommType.computation, msg_size=((1, 2), (2, 3)), stage="forward.x", elapsed_time=5000),
        LogItem(CommType.computation, msg_size=((1, 2), (2, 3)), stage="forward.x"),
        LogItem(CommType.all_reduce, CommGroup.tp_group, 4, GIB, "forward.x"),
        LogItem(CommType.epoch_end),
    ]
    path = tmp_path / "own.csv"
    Workload(items).save(path)
    answer = ask("-w", str(path), "-g", "8", *CLUSTER, "--json")
    assert "1 computations have no time" in answer.err
    assert answer.summary["computation_us"] == 5
    text = write(tmp_path / "w", [row("ALLREDUCE 1073741824")], tp=4)
    same = ask("-w", str(text), "-g", "8", *CLUSTER, "--json").summary
    assert answer.summary["exposed_us"] == same["exposed_us"]


def test_the_second_form_of_a_csv_counts_with_its_repetitions(tmp_path: Path) -> None:
    gather = LogItem(
        CommType.all_to_all_single, CommGroup.tp_ep_group, 4, GIB, "forward", dtype="bfloat16", phase="forward"
    )
    norm = LogItem(CommType.all_reduce, CommGroup.mp_group, 8, GIB, "step", phase="step", dtype="float32")
    path = tmp_path / "full.csv"
    Workload([EPOCH_END, Block([gather], 3, (1, 0)), norm, EPOCH_END]).save(path)
    answer = ask("-w", str(path), "-g", "8", *CLUSTER, "--json")
    rows = [row("ALLTOALL_EP_TP 1073741824")] * 3 + [row("NONE 0", "NONE 0", "ALLREDUCE_ALL 1073741824")]
    same = ask("-w", str(write(tmp_path / "w", rows)), "-g", "8", *CLUSTER, "--json").summary
    assert answer.summary["exposed_us"] == same["exposed_us"] and sum(same["exposed_us"].values()) > 0


def test_a_csv_without_an_iteration_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    Workload([LogItem(CommType.epoch_end)]).save(path)
    assert ask("-w", str(path), "-g", "8", *CLUSTER).code == 2
    path.write_text("comm_type,nonsense\n")
    assert ask("-w", str(path), "-g", "8", *CLUSTER).code == 2


def test_the_originals_dialect_reads_its_own_text_alone(tmp_path: Path) -> None:
    path = trace(tmp_path / "t.et", node(1, "COMP_NODE", 1))
    answer = ask("-w", str(path), "-g", "8", *CLUSTER, "--dialect", "simai")
    assert answer.code == 2 and "SimAI text only" in answer.err
