"""SimAI text of the dialect framework: the bytes of the CSV, layer by layer, and what our simulation makes of it."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from simulation.analytical.aicb_rows import COLLECTIVE as CSV_COLLECTIVE
from simulation.cli import main as simulate
from tests.workloads.test_framework_dialect import BASE, FSDP2, LATENT, MOE, RECORDED, TITAN, TRACES, arguments
from workloads.cli import main
from workloads.formats.simai_text import ALL, DP, GROUP, TP
from workloads.library import ParameterError, SimaiWorkload, WorkItem, WorkloadArgs, generate, simai
from workloads.trace import record

EXAMPLE = Path(__file__).parents[1] / "data" / "aicb" / "aiob_example.txt"
SP = {"enable_sequence_parallel": True}
JOBS: dict[str, dict[str, Any]] = {
    "dense": {},
    "sequence parallel, full recomputation": SP | {"activation_recompute": "full"},
    "interleaved, overlap": SP | {
        "num_layers": 8, "virtual_pipeline": 2, "use_distributed_optimizer": True, "overlap_grad_reduce": True,
        "overlap_param_gather": True,
    },
    "uneven stages, tied": {"num_layers": 5, "num_layers_first_stage": 3, "num_layers_last_stage": 2},
    "experts": MOE | {"moe_first_dense_layers": 1, "moe_shared_expert_size": 64, "moe_aux_loss": True},
    "uneven experts": MOE | {"routing": "zipf:1.2", "moe_token_dispatcher": "allgather"},
    "latent": LATENT | MOE | {"q_lora_rank": 96, "moe_expert_bias": True, "qk_layernorm": True},
    "FSDP2": FSDP2 | {"global_batch": 32},
    "FSDP2 with tensor parallelism": TITAN | {"activation_recompute": "full"},
    "grouped queries, one stage": {"num_query_groups": 1, "pipeline_model_parallel": 1, "qk_layernorm": True},
}  # fmt: skip


def sent(args: WorkloadArgs) -> Counter[tuple[str, str]]:
    """Bytes of a later iteration by SimAI's collective and our simulation's group; messages between stages apart."""
    sums: Counter[tuple[str, str]] = Counter()
    stage = max(0, args.pp_rank)
    flat = generate(replace(args, epoch_num=4), dialect="framework", pp_stage=stage)
    for item, count in flat.epoch(4).rows.tally_kinds().items():
        if item.is_communication and item.comm_type.name not in ("isend", "irecv"):
            assert item.comm_group is not None and isinstance(item.comm_bytes, int)
            group = GROUP.get(item.comm_group.name, ALL)
            sums[CSV_COLLECTIVE[item.comm_type.name], group] += count * item.comm_bytes
    return sums


def written(text: SimaiWorkload) -> Counter[tuple[str, str]]:
    """The same of a SimAI text, with SimAI's groups of the columns."""
    sums: Counter[tuple[str, str]] = Counter()
    for item, count in text.tally().items():
        for phase, group in ((item.forward, TP), (item.input_gradient, TP), (item.weight_gradient, DP)):
            if phase.collective != "NONE":
                sums[phase.collective, phase.group or group] += count * phase.size
    return sums


@pytest.mark.parametrize("name", JOBS)
def test_a_text_has_the_bytes_of_each_group_of_the_csv(name: str) -> None:
    args = WorkloadArgs(**BASE | JOBS[name])
    for stage in range(args.pipeline_model_parallel):
        at = replace(args, pp_rank=stage) if args.pipeline_model_parallel > 1 else args
        text = simai(at, dialect="framework")
        assert written(text) == sent(at) != Counter()
        messages = [row.msg_size for row in generate(at, dialect="framework") if row.comm_type.name == "isend"]
        assert text.header is not None
        assert {text.header.pp_comm} == {*messages, *([] if messages else [0])}


@pytest.mark.parametrize("file", RECORDED)
def test_a_text_of_every_recorded_job_has_the_bytes_of_its_rules(file: str) -> None:
    tried = 0
    for trace in record.load(TRACES / file):
        args = replace(arguments(trace.job), pp_rank=trace.job.pp_stage if trace.job.frame == "Megatron" else -1)
        try:
            text = simai(args, dialect="framework")
        except ParameterError as error:
            assert "SimAI's text" in str(error)
            continue
        assert written(text) == sent(args)
        tried += 1
    assert tried > 5


def test_a_layer_is_rows_of_its_modules_forward_beside_backward() -> None:
    rows = list(simai(WorkloadArgs(**BASE | SP | {"num_layers": 2}), dialect="framework"))
    names = [row.name for row in rows]
    begin = names.index("embedding_layer")
    size = 2 * 128 * 256
    layer = [row for row in rows[begin:] if row.name == "self_attention.linear_qkv"][:2]
    assert [(row.forward.comm, row.input_gradient.comm) for row in layer] == [
        ("NONE", "REDUCESCATTER"), ("ALLGATHER", "ALLGATHER"),
    ]  # fmt: skip
    assert {row.input_gradient.size for row in layer} == {size}
    assert names[begin:][:7] == [
        "embedding_layer", "self_attention.linear_qkv", "self_attention.linear_qkv", "self_attention.linear_proj",
        "mlp.linear_fc1", "mlp.linear_fc1", "mlp.linear_fc2",
    ]  # fmt: skip
    assert len(rows) == begin + 4 * 7
    assert all(row.weight_gradient.compute_ns == 1 for row in rows[begin:] if row.forward.compute_ns)


def test_measured_times_are_on_the_modules_that_they_measure() -> None:
    """Sums of the file's sections, forward; full recomputation adds a forward pass to the backward one."""
    timed = {"aiob_enable": True, "comp_filepath": str(EXAMPLE), "pipeline_model_parallel": 1, "num_layers": 1}
    args = WorkloadArgs(**BASE | timed | {"global_batch": 8})
    rows = list(simai(args, dialect="framework"))
    by_name = {row.name: row for row in rows if row.forward.compute_ns}
    layer = [row for name, row in by_name.items() if name.startswith(("self_attention", "mlp"))]
    assert sum(row.forward.compute_ns for row in layer) == 1_820_000 + 2_478_000
    assert by_name["embedding_layer"].forward.compute_ns == 799_000
    assert all(
        row.forward.compute_ns == row.weight_gradient.compute_ns == row.input_gradient.compute_ns for row in layer
    )
    again = simai(replace(args, activation_recompute="full"), dialect="framework")
    assert sum(row.input_gradient.compute_ns for row in again) == (
        sum(row.input_gradient.compute_ns for row in rows) + 1_820_000 + 2_478_000
    )
    assert next(row for row in rows if row.name == "optimizer").input_gradient.compute_ns == 17_374_000


@pytest.mark.parametrize("name", ["experts", "interleaved, overlap"])
def test_our_simulation_takes_a_text_for_what_the_csv_says(name: str, tmp_path: Path) -> None:
    """Groups cost the same, and so do the messages between stages, of which the text says the last stages', too."""
    args = replace(WorkloadArgs(**BASE | JOBS[name]), overlap_grad_reduce=False, overlap_param_gather=False)
    generate(args, dialect="framework").save(tmp_path / "w.csv")
    simai(args, dialect="framework").save(tmp_path / "w.txt")
    found = {}
    for file in ("w.csv", "w.txt"):
        words = ["-w", tmp_path / file, "-g", 16, "-g_p_s", 8, "-n_p_s", 8, "-nv", 360, "-nic", 48.5]
        assert simulate(["analytical", *map(str, words), "-r", "x", "-r_f", str(tmp_path / f"{file}.d")]) == 0
        found[file] = json.loads(next((tmp_path / f"{file}.d").glob("*.json")).read_text())["summary"]
    assert found["w.txt"]["exposed_us"] == pytest.approx(found["w.csv"]["exposed_us"])
    assert sum(found["w.txt"]["exposed_us"].values()) > 0


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (MOE | {"expert_tensor_parallel_size": 1}, "expert_tensor_parallel_size is 1, but SimAI's text has one tensor"),
        (FSDP2 | {"replicate": 2}, "replicate is 2, but SimAI's text has one data-parallel group; nearest: 1"),
        ({"epoch_num": 2}, "epoch_num is 2, but SimAI's text is one iteration; nearest: 1"),
        ({"aiob_enable": True}, "aiob_enable and comp_filepath go together"),
        ({"aiob_enable": True, "comp_filepath": "nowhere"}, "nowhere: No such file"),
        (LATENT | {"aiob_enable": True, "comp_filepath": str(EXAMPLE)}, "lacks the sections attention_linear_q_lora"),
        (FSDP2 | {"aiob_enable": True, "comp_filepath": str(EXAMPLE)}, "holds times of Megatron's modules"),
        ({"context_parallel_size": 2}, "or --dialect aicb --break_rules, which splits nothing"),
    ],
)  # fmt: skip
def test_what_a_text_has_no_place_for_is_refused(values: dict[str, Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        simai(WorkloadArgs(**BASE | values), dialect="framework")


def test_the_command_writes_what_loads_again(tmp_path: Path) -> None:
    path = tmp_path / "w.txt"
    assert main(["simai", "--dialect", "framework", "-m", "moe", "--output", str(path)]) == 0
    text = SimaiWorkload.load(path)
    assert text.header is not None and (text.header.tp, text.header.ep, text.header.vpp) == (2, 8, 1)
    again = [WorkItem.from_text(row.to_text()) for row in text]
    assert again == list(text) and len(again) > 700
    for dialect in ("clusterdyno", "simai"):
        words = ["-g", "32", "-g_p_s", "8", "-n_p_s", "8", "-g_type", "H100", "--dialect", dialect, "-r", "x"]
        assert simulate(["analytical", "-w", str(path), *words, "-r_f", str(tmp_path / dialect)]) == 0
