"""Tests workloads of inference: the rules against recorded passes of Megatron-core, SimAI's text, what is refused."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.workloads import trace_matrix
from tests.workloads.test_framework_dialect import arguments
from workloads import options
from workloads.cli import main
from workloads.dialects.framework.effects import TRAINING_ONLY
from workloads.dialects.framework.inference import InferenceRank
from workloads.formats.simai import SimaiWorkload
from workloads.formats.simai_text import parse_header
from workloads.job.naming import default_path
from workloads.library import CommType, ParameterError, WorkloadArgs, generate, simai
from workloads.trace import checks
from workloads.trace.job import TraceJob
from workloads.trace.record import Trace, load

BASE: dict[str, Any] = {
    "world_size": 8, "tensor_model_parallel_size": 2, "num_layers": 4, "hidden_size": 256, "num_attention_heads": 8,
    "seq_length": 128, "micro_batch": 4, "global_batch": 16,
}  # fmt: skip
MOE: dict[str, Any] = {"moe_enable": True, "num_experts": 8, "moe_router_topk": 2, "expert_model_parallel_size": 4}


@cache
def recorded() -> list[Trace]:
    return list(load(trace_matrix.FOLDER / "inference.jsonl.xz"))


def test_every_recorded_call_is_the_rules_in_order() -> None:
    traces = recorded()
    assert [trace.job for trace in traces] == trace_matrix.covering("inference") and len(traces) >= 24
    for trace in traces:
        rank = InferenceRank(arguments(trace.job), trace.job.rank)
        ruled = [rank.setup(), *rank.iterations(trace.job.iterations)]
        for calls, ops in zip(ruled, trace.iterations, strict=True):
            assert [(call.phase, call.micro_batch, call.identity) for call in calls] == [
                (op.phase, op.micro_batch, op.identity) for op in ops
            ], trace.job


def test_recorded_jobs_have_every_model_in_both_phases() -> None:
    jobs = [trace.job for trace in recorded()]
    kinds = {(job.phase, job.multi_latent_attention, job.num_experts > 0) for job in jobs}
    assert kinds == {(phase, *kind) for phase in ("prefill", "decode") for kind in ((0, 0), (0, 1), (1, 1))}
    assert checks.problems(jobs[0]) == [] and all(op.problems() == [] for trace in recorded() for op in trace.ops)


def test_a_decoding_step_is_one_token_of_each_sequence() -> None:
    prefill = generate(WorkloadArgs(**BASE | MOE, phase="prefill"), dialect="framework")
    decode = generate(WorkloadArgs(**BASE | MOE, phase="decode", epoch_num=100), dialect="framework")
    assert decode.iterations == 100
    summed = [
        next(row.msg_size for row in made.epoch(1) if row.comm_type is CommType.all_reduce)
        for made in (prefill, decode)
    ]
    assert summed == [2 * 4 * 128 * 256, 2 * 4 * 256]
    longer = generate(WorkloadArgs(**BASE | MOE | {"seq_length": 4096}, phase="decode"), dialect="framework")
    assert list(longer.epoch(1)) == list(decode.epoch(1))
    assert {row.phase for row in decode.epoch(1) if row.is_communication} == {"forward"}


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_235b", "llama3_70b"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_the_models_have_both_phases_as_csv_and_as_text(name: str, phase: str) -> None:
    given = {"phase": phase, "pp_rank": 1, "expert_tensor_parallel_size": None}
    made = generate(options.resolve(given, name, "csv", "framework"), dialect="framework")
    text = simai(options.resolve(given, name, "simai", "framework"), dialect="framework")
    assert text.header is not None and text.header.mode == 1
    assert not any(
        row.input_gradient.size or row.weight_gradient.size or row.weight_gradient.compute_ns for row in text
    )
    sent: Counter[str] = Counter()
    for row in made:
        if row.comm_type not in (CommType.isend, CommType.irecv) and row.phase == "forward":
            assert isinstance(row.msg_size, int)
            sent[row.comm_type.name.partition("_into")[0].partition("_single")[0].replace("_tensor", "")] += (
                row.msg_size
            )
    written: Counter[str] = Counter()
    for item in text:
        written[item.forward.comm.split("_")[0]] += item.forward.size
    assert {kind: written[kind.upper().replace("_", "")] for kind in sent} == sent
    assert (name == "llama3_70b") == ("all_to_all" not in sent)


def test_text_of_aicbs_rules() -> None:
    values = BASE | MOE | {"frame": "DeepSeek", "n_dense_layers": 1, "n_shared_expert": 1, "pipeline_model_parallel": 2}
    made = simai(WorkloadArgs(**values, phase="decode"), dialect="aicb")
    assert made.header is not None
    assert made.header.to_text() == (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 4 pp: 2 all_gpus: 8 mode: 1 vpp: 1 ga: 1 "
        f"checkpoints: 0 checkpoint_initiates: 0 pp_comm: {2 * 4 * 128 * 256}"
    )
    message = 2 * 4 * 256
    dense, layer = (
        [
            f"attention_layer\t-1\t1\tALLREDUCE\t{message}\t0\tNONE\t0\t0\tNONE\t0\t100",
            f"dense_mlp\t-1\t1\tALLREDUCE\t{message}\t0\tNONE\t0\t0\tNONE\t0\t100",
        ],
        [
            f"attention_layer\t-1\t1\tALLREDUCE\t{message}\t0\tNONE\t0\t0\tNONE\t0\t100",
            "shared_experts\t-1\t1\tNONE\t0\t0\tNONE\t0\t0\tNONE\t0\t100",
            f"moe_route\t-1\t1\tALLTOALL_EP\t{int(message * (1 + 4 / 128) / 2)}\t1\tNONE\t0\t1\tNONE\t0\t100",
            f"moe_expert\t-1\t1\tALLTOALL_EP\t{message}\t1\tNONE\t0\t1\tNONE\t0\t100",
        ],
    )
    assert [row.to_text() for row in made] == dense + layer * 3
    prompt = simai(WorkloadArgs(**BASE | MOE, phase="prefill"), dialect="aicb")
    assert [row.name for row in prompt][:5] == [
        "attention_norm",
        "attention_layer",
        "moe_norm",
        "moe_route",
        "moe_expert",
    ]
    assert [row.forward.size for row in prompt][:5] == [
        0,
        2 * 128 * 256,
        0,
        int(2 * 128 * 256 * 33 / 64),
        2 * 128 * 256,
    ]


def test_aicbs_preset_has_the_batch_of_inference() -> None:
    args = options.resolve({"phase": "decode", "micro_batch": 64, "world_size": 1024}, "deepseek671", "simai", "aicb")
    assert args.global_batch % (64 * args.data_parallel_size) == 0 and len(simai(args, dialect="aicb")) > 100


def test_the_text_is_read_back(tmp_path: Path) -> None:
    made = simai(WorkloadArgs(**BASE | MOE, phase="prefill"), dialect="aicb")
    made.save(tmp_path / "x.txt")
    again = SimaiWorkload.load(tmp_path / "x.txt")
    assert again.header == made.header and list(again) == list(made)
    read = parse_header(*(tmp_path / "x.txt").read_text().splitlines()[:2])
    assert (read.tp, read.ep, read.all_gpus, read.rows, read.old) == (2, 4, 8, len(made), False)
    assert "prefill" in default_path(WorkloadArgs(**BASE, phase="prefill"), "csv", "framework").name


@pytest.mark.parametrize(
    ("values", "dialect", "target", "text"),
    [
        ({"enable_sequence_parallel": True}, "framework", "csv", "splits no sequences in phase decode"),
        ({"virtual_pipeline": 2, "pipeline_model_parallel": 2}, "framework", "csv", "no virtual stages"),
        ({"frame": "FSDP2", "tensor_model_parallel_size": 1}, "framework", "csv", "frame FSDP2 has training alone"),
        ({"comp_filepath": "x", "aiob_enable": True}, "framework", "simai", "none of phase decode"),
        ({}, "aicb", "csv", "--dialect framework has the CSV"),
        ({}, "aicb", "simai", "--dialect framework has dense models"),
        ({"frame": "DeepSeek", "aiob_enable": True}, "aicb", "simai", "none of phase decode"),
    ],
)
def test_what_inference_does_not_have_is_refused(
    values: dict[str, object], dialect: str, target: str, text: str
) -> None:
    args = WorkloadArgs.from_dict(BASE | values | {"phase": "decode"})
    with pytest.raises(ParameterError, match=text):
        (generate if target == "csv" else simai)(args, dialect=dialect)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"phase": "decode", "enable_sequence_parallel": True, "world_size": 2, "tensor_model_parallel_size": 2},
         "splits no sequences"),
        ({"phase": "prefill", "virtual_pipeline": 2, "pipeline_model_parallel": 2, "world_size": 2},
         "no virtual stages"),
        ({"phase": "prefill", "frame": "DeepSpeed"}, "traced in training alone"),
        ({"phase": "chat"}, "none of training, prefill, decode"),
    ],
)  # fmt: skip
def test_what_cannot_be_traced_is_refused(changes: dict[str, object], text: str) -> None:
    assert any(text in problem for problem in checks.problems(TraceJob.from_dict(changes)))


def test_a_training_option_without_effect_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "generate -m llama3_8b --dialect framework --phase prefill --recompute_activations --use_distributed_optimizer"
    )
    assert main([*words.split(), "--output", str(tmp_path / "x.csv")]) == 0
    said = capsys.readouterr().err
    assert "--use_distributed_optimizer" in said and "--phase" not in said
    assert "moe_expert_bias" in TRAINING_ONLY
