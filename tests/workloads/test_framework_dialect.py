"""Tests the dialect `framework` against what Megatron-core was recorded to send, without any tolerance."""

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from workloads import options
from workloads.cli import main
from workloads.dialects.framework import presets, schedule
from workloads.dialects.framework.megatron import MegatronRank
from workloads.dialects.framework.placement import RankPlacement
from workloads.dialects.framework.rows import rank_of
from workloads.job import presets as aicb_presets
from workloads.job import refusals
from workloads.job.parameters import KINDS
from workloads.library import CommType, ParameterError, Workload, WorkloadArgs, generate
from workloads.trace import record
from workloads.trace.job import TraceJob

TRACES = Path(__file__).parents[1] / "data" / "aicb" / "traces"
RECORDED = sorted(path.name for kind in ("megatron", "fsdp2", "deepspeed") for path in TRACES.glob(f"{kind}*.xz"))
WHOLE = ("norm.weight", "norm.bias", "router.weight", "proj.bias", "fc2.bias", "position_embeddings.weight")
"""Ends of the names of parameters that every tensor rank holds in full."""
BASE: dict[str, Any] = {
    "world_size": 16, "tensor_model_parallel_size": 2, "pipeline_model_parallel": 2, "num_layers": 4,
    "hidden_size": 256, "num_attention_heads": 8, "seq_length": 128, "global_batch": 16,
}  # fmt: skip

MOE: dict[str, Any] = {
    "moe_enable": True, "num_experts": 8, "moe_router_topk": 2, "expert_model_parallel_size": 2,
    "enable_sequence_parallel": True,
}  # fmt: skip
BIASED: dict[str, Any] = {"add_bias_linear": True, "expert_tensor_parallel_size": 1}
FSDP2: dict[str, Any] = {"frame": "FSDP2", "tensor_model_parallel_size": 1, "pipeline_model_parallel": 1}
TITAN: dict[str, Any] = FSDP2 | {
    "tensor_model_parallel_size": 2, "fsdp_units": "torchtitan", "untie_embeddings": True,
}  # fmt: skip
LATENT: dict[str, Any] = {"multi_latent_attention": True, "kv_lora_rank": 64}


def arguments(job: TraceJob) -> WorkloadArgs:
    """The parameters of a traced job as those of a workload."""
    values = {name: value for name, value in job.to_dict().items() if name in KINDS}
    values["global_batch"] = job.num_microbatches * job.micro_batch * job.data_parallel_size
    values |= {"num_layers": job.num_layers, "num_attention_heads": job.num_attention_heads}
    values |= {"moe_enable": job.num_experts > 0, "num_experts": max(1, job.num_experts)}
    if job.frame != "Megatron":
        del values["num_experts"]
    values |= {name: getattr(job, name) for name in ("contiguous_gradients", "prefetch_bucket_size")}
    values |= {"q_lora_rank": job.q_lora_rank, "ffn_hidden_size": job.ffn_size}
    return WorkloadArgs(**values)


def check_order(traces: list[record.Trace], *named: str) -> None:
    """Check that the operations of each trace are the rules', in order, as far as these attributes tell."""
    told = attrgetter("phase", "identity", *named)
    for trace in traces:
        rank = rank_of(arguments(trace.job), trace.job.rank)
        ruled = [rank.setup(), *rank.iterations(len(trace.iterations) - 1)]
        for number, (calls, ops) in enumerate(zip(ruled, trace.iterations, strict=True)):
            assert [*map(told, calls)] == [*map(told, ops)], (number, trace.job)


@pytest.fixture(scope="module", params=RECORDED)
def traces(request: pytest.FixtureRequest) -> list[record.Trace]:
    return list(record.load(TRACES / request.param))


def test_every_recorded_call_is_the_rules_in_order(traces: list[record.Trace]) -> None:
    assert len(traces) >= 20
    check_order(traces, "group")


def test_recorded_groups_are_the_placements(traces: list[record.Trace]) -> None:
    for trace in (trace for trace in traces if trace.job.frame == "Megatron"):
        place = RankPlacement(arguments(trace.job), trace.job.rank)
        ranks = {
            "world": place.world, "tp": place.tensor, "dp": place.data, "dp_cp": place.data, "pp": place.pipeline,
            "mp": place.model, "embedding": place.embedding, "ep": place.expert, "expert_tp": place.expert_tensor,
            "tp_ep": place.tensor_expert, "expert_dp": place.expert_data, "tp_ep_pp": place.expert_model,
            "tp_cp": place.tensor, "tp_dp_cp": place.stage_ranks, "tp_dp": place.stage_ranks,
        }  # fmt: skip
        for op in trace.ops:
            assert ranks[op.group] == op.ranks


def test_recorded_jobs_break_no_rule(traces: list[record.Trace]) -> None:
    for trace in traces:
        generate(arguments(trace.job), dialect="framework", pp_stage=trace.job.pp_stage)


def test_iterations_with_overlap_differ_from_the_first_alone() -> None:
    args = WorkloadArgs(**BASE, epoch_num=4, use_distributed_optimizer=True, overlap_grad_reduce=True,
                        overlap_param_gather=True)  # fmt: skip
    made = generate(args, dialect="framework")
    epochs = [[(row.comm_type, row.msg_size, row.stage) for row in made.epoch(number)] for number in range(1, 5)]
    assert epochs[0] != epochs[1] == epochs[2] == epochs[3]
    plain = generate(WorkloadArgs(**BASE, epoch_num=2), dialect="framework")
    assert list(plain.epoch(1)) == list(plain.epoch(2))


def test_a_long_job_costs_what_its_distinct_calls_cost() -> None:
    args = WorkloadArgs(**BASE | {"global_batch": 1_600_000, "epoch_num": 10})
    made = generate(args, dialect="framework", pp_stage=1)
    assert len(made) > 30_000_000
    assert made.rows.count_where(lambda row: row.comm_type is CommType.isend) == 2_000_000 * 2
    assert made.iterations == 10


@pytest.mark.parametrize("overlap", [False, True])
def test_a_long_interleaved_job_repeats_what_it_would_say_in_full(
    overlap: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = BASE | {"pipeline_model_parallel": 4, "num_layers": 8, "virtual_pipeline": 2, "overlap_p2p": overlap}
    values |= {"overlap_grad_reduce": overlap, "epoch_num": 2, "global_batch": 2 * 28}
    ends = schedule.ENDS
    for stage in range(4):
        monkeypatch.setattr(schedule, "ENDS", ends)
        short = generate(WorkloadArgs(**values), dialect="framework", pp_stage=stage)
        monkeypatch.setattr(schedule, "ENDS", 10**9)
        assert list(generate(WorkloadArgs(**values), dialect="framework", pp_stage=stage)) == list(short)
    monkeypatch.setattr(schedule, "ENDS", ends)
    assert len(generate(WorkloadArgs(**values | {"global_batch": 2_000_000}), dialect="framework")) > 10_000_000


def test_an_enormous_cluster_takes_no_time() -> None:
    args = WorkloadArgs(**BASE | {"world_size": 1 << 24, "global_batch": 1 << 24})
    assert len(generate(args, dialect="framework", pp_stage=1)) < 100


def test_pp_rank_chooses_the_stage() -> None:
    first = generate(WorkloadArgs(**BASE), dialect="framework")
    last = generate(WorkloadArgs(**BASE, pp_rank=1), dialect="framework")
    assert list(first) != list(last) == list(generate(WorkloadArgs(**BASE), dialect="framework", pp_stage=1))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"context_parallel_size": 3}, "world_size 16 must be a multiple of tensor_model_parallel_size *"),
        ({"tensor_model_parallel_size": 1, "enable_sequence_parallel": True}, "enable_sequence_parallel needs"),
        ({"overlap_param_gather": True}, "overlap_param_gather needs use_distributed_optimizer"),
        ({"num_layers": 5}, "5 of num_layers 5 must be divided evenly over 2 pipeline stages; nearest num_layers: 4"),
        ({"num_layers_first_stage": 3}, None),
        ({"num_layers_first_stage": 3, "num_layers_last_stage": 3}, "-2 of num_layers 4"),
        ({"virtual_pipeline": 3}, "virtual_pipeline 3 must divide the layers of each stage, [2, 2]"),
        ({"virtual_pipeline": 2, "global_batch": 12}, "the 3 micro-batches of a rank must be a multiple of"),
        ({"num_query_groups": 3}, "num_attention_heads 8 must be a multiple of num_query_groups 3"),
        ({"num_attention_heads": 3}, "hidden_size 256 must be a multiple of num_attention_heads 3"),
        ({"ffn_hidden_size": 255}, "the MLP width (ffn_hidden_size) 255 must be a multiple"),
        ({"seq_length": 127, "enable_sequence_parallel": True}, "seq_length 127 must be a multiple"),
        ({"position_embedding": "alibi"}, "position_embedding is 'alibi'; allowed: rope, learned_absolute"),
        ({"bucket_size": 0}, "bucket_size is 0; it must be at least 1"),
        ({"num_layers": 10**9}, "num_layers is 1000000000; it is at most 100000"),
        (MOE | {"num_experts": 10**12}, "num_experts is 1000000000000; it is at most 100000"),
        ({"epoch_num": 10**18}, "epoch_num 1000000000000000000 * num_layers * micro-batches of a rank 16 are"),
        ({"global_batch": 4 * 10**20}, "are more than a workload holds, 1125899906842624; nearest epoch_num: 1"),
        ({"pp_rank": 2}, "pp_rank 2 must be -1 or one of the pipeline stages 0 to 1"),
        ({"num_experts": 8}, "num_experts and expert_model_parallel_size need --moe_enable"),
        ({"frame": "DeepSeek"}, "what AICB calls frame DeepSeek is here --multi_latent_attention with experts"),
        (MOE | {"enable_sequence_parallel": False}, "needs --enable_sequence_parallel: Megatron demands it"),
        (MOE | {"expert_model_parallel_size": 3}, "the 8 ranks of a pipeline stage must be a multiple of"),
        (MOE | {"num_experts": 7}, "num_experts 7 must be a multiple of expert_model_parallel_size 2; nearest: 6 or 8"),
        (MOE | {"moe_router_topk": 9}, "is no routing"),
        (MOE | {"routing": "file:nowhere"}, "routing file nowhere"),
        (MOE | {"moe_ffn_hidden_size": 33}, "the width of an expert 33 must be a multiple of"),
        (MOE | {"moe_shared_expert_size": 33}, "moe_shared_expert_size 33 must be a multiple of 2"),
        (MOE | BIASED | {"expert_tensor_parallel_size": None}, "add_bias_linear with experts over 2 tensor ranks"),
        (MOE | BIASED | {"expert_model_parallel_size": 1}, "add_bias_linear with expert_model_parallel_size 1"),
        (MOE | BIASED | {"moe_shared_expert_size": 32}, "Megatron-core has no biases in shared experts"),
        (MOE | BIASED, None),
        (MOE | {"moe_first_dense_layers": 5}, "moe_first_dense_layers 5 must be from 0 to num_layers 4"),
        (MOE | {"moe_token_dispatcher": "flex"}, refusals.dispatcher("flex")),
        (MOE | {"expert_model_parallel_size": 8, "expert_tensor_parallel_size": 1}, None),
        (LATENT | {"kv_lora_rank": 63}, "kv_lora_rank + qk_rope_dim 127 must be a multiple"),
        (LATENT | {"v_head_dim": 0}, "v_head_dim is 0; it must be at least 1"),
        (LATENT, None),
        (FSDP2, None),
        (FSDP2 | {"replicate": 3}, "replicate 3 must divide world_size 16"),
        (FSDP2 | {"fsdp_units": "torchtitan"}, "it needs --untie_embeddings"),
        (FSDP2 | {"fsdp_units": "ddp"}, "fsdp_units is 'ddp'; allowed: layers, torchtitan"),
        (FSDP2 | {"clip_grad": -1.0}, "clip_grad is -1.0; it is 0"),
        (FSDP2 | {"tensor_model_parallel_size": 2}, "needs fsdp_units torchtitan"),
        (TITAN | {"activation_recompute": "full", "add_bias_linear": True}, None),
        (TITAN | {"vocab_size": 1001}, "vocab_size 1001 must be a multiple of tensor_model_parallel_size 2"),
        (FSDP2 | {"replicate": 16}, "leave two ranks or more to shard over"),
        (FSDP2 | MOE, "moe_enable is True, but frame FSDP2 has data-parallel ranks alone; nearest: False"),
        (FSDP2 | {"hidden_size": 257}, "hidden_size 257 must be a multiple of num_attention_heads 8"),
        ({"dtype": "float16"}, "dtype is 'float16'; only bfloat16 has been traced"),
    ],
)  # fmt: skip
def test_what_megatron_refuses_is_refused_with_the_reason(values: dict[str, Any], text: str | None) -> None:
    args = WorkloadArgs(**BASE | values)
    if text is None:
        assert len(generate(args, dialect="framework"))
        return
    with pytest.raises(ParameterError) as caught:
        generate(args, dialect="framework", break_rules=True)
    assert any(text in str(problem) for problem in caught.value.problems)


def test_the_command_line_writes_and_names_what_has_no_effect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "w.csv"
    words = ["generate", "--dialect=framework", "-m13", "--world_size=16", "--tp=2", "--sp", "--overlap_p2p"]
    assert main([*words, "--use_flash_attn", "--output", str(path)]) == 0
    assert "no effect on this workload: --overlap_p2p, --use_flash_attn" in capsys.readouterr().err
    assert path.read_text().count("reduce_scatter_tensor") > 2
    again, args = Workload.load(path)
    assert args is not None
    assert list(again) == list(generate(args, dialect="framework"))
    assert len(again) > 800


PUBLISHED = {
    "gpt3_13b": (40, 13), "gpt_22b": (48, 22), "gpt3_175b": (96, 175), "llama_30b": (60, 32.5),
    "llama_65b": (80, 65.2), "llama2_7b": (32, 6.74), "llama3_8b": (32, 8.03), "llama3_70b": (80, 70.6),
    "llama3_405b": (126, 405.9), "mixtral_8x7b": (32, 46.7), "mixtral_8x22b": (56, 140.6),
    "deepseek_v2_lite": (27, 15.7), "deepseek_v2": (60, 235.7), "deepseek_v3": (61, 671), "qwen3_235b": (94, 235.1),
}  # fmt: skip
"""Layers, and parameters in billions."""


@pytest.mark.parametrize("name", presets.NAMES)
def test_every_model_has_its_real_number_of_layers_and_parameters(name: str) -> None:
    layers, billions = PUBLISHED[name]
    args = options.resolve({}, name, "csv", "framework")
    assert args.num_layers == layers
    stage = args.world_size // args.pipeline_model_parallel
    total = 0
    for number in range(args.pipeline_model_parallel):
        rank = MegatronRank(args, number * stage)
        ranks = {True: rank.place.etp * rank.place.ep, False: rank.place.tp}
        total += sum(
            each.numel * (1 if each.name.endswith(WHOLE) else ranks[each.expert])
            for chunk in rank.chunks
            for each in chunk.parameters
            if not (each.name == "output_layer.weight" and not args.untie_embeddings)
        )
        assert len(generate(args, dialect="framework", pp_stage=number))
    assert total / 1e9 == pytest.approx(billions, rel=0.012)


def test_a_frame_without_tensor_ranks_takes_a_model_undivided() -> None:
    args = options.resolve({"frame": "FSDP2"}, "llama3_70b", "csv", "framework")
    assert (args.tensor_model_parallel_size, args.pipeline_model_parallel, args.num_layers) == (1, 1, 80)
    assert generate(args).total_bytes > 2 * 3 * 70e9


def test_models_are_named_as_in_aicb_too() -> None:
    for name in aicb_presets.NAMES:
        assert options.resolve({}, name, "csv", "framework").model_name in presets.NAMES
    made = options.resolve({"world_size": 16}, "moe", "csv", "framework")
    assert (made.model_name, made.num_query_groups, made.world_size) == ("mixtral_8x7b", 8, 16)
    with pytest.raises(ValueError, match="there is no model_size '66' in the dialect framework; there is gpt3_13b"):
        options.resolve({}, "66", "csv", "framework")


def test_a_rank_sends_every_token_to_topk_experts() -> None:
    args = WorkloadArgs(**BASE | MOE | {"routing": "zipf:1.2", "moe_router_topk": 3})
    sent = [row for row in generate(args, dialect="framework") if row.comm_type is CommType.all_to_all_single]
    tokens = args.seq_length // 2 * 3 * args.hidden_size * 2
    assert sent[0].msg_size == tokens
    assert sent[0].in_splits is not None and sum(sent[0].in_splits) == tokens


def test_fsdp2_gathers_a_layer_early_and_reduces_after_the_last_micro_batch() -> None:
    args = WorkloadArgs(
        **BASE | FSDP2 | {"num_layers": 2, "global_batch": 32, "replicate": 2, "vocab_size": 1001, "clip_grad": 0.0},
        reshard_after_forward=True,
    )
    rows = [row for row in generate(args, dialect="framework").epoch(1) if row.is_communication]
    said = [(row.phase, row.comm_type.name.partition("_")[2][:4], row.module, row.micro_batch) for row in rows]
    forward = [("forward", "gath", name, 0) for name in (None, "layers.0", "layers.1")]
    backward = [("backward", "gath", name, 0) for name in (None, "layers.1", "layers.0")]
    assert said[:6] == forward + backward
    assert [each[1:3] for each in said[9:]] == [
        ("gath", None), ("gath", "layers.1"), ("gath", "layers.0"), ("scat", "layers.1"), ("redu", "layers.1"),
        ("scat", "layers.0"), ("redu", "layers.0"), ("scat", None), ("redu", None),
    ]  # fmt: skip
    root = 1008 * 256 + 256  # 1001 words over 8 shards: 126 each
    assert rows[0].msg_size == 2 * root
    assert [row.msg_size for row in rows[-2:]] == [4 * root, 4 * root // 8]
    assert str(rows[-1].ranks) == "0:8:2"


def test_aicb_has_no_fsdp2() -> None:
    with pytest.raises(ParameterError, match="frame FSDP2 is none of AICB's; --dialect framework has it"):
        generate(WorkloadArgs(**BASE | FSDP2), dialect="aicb")


def test_every_stage_in_one_call_is_what_a_call_for_each_writes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ready-made model has stages of 3 and 2 layers, which 8 layers over 4 stages unset."""
    words = ["generate", "-m", "deepseek_v3", "--pp", "4", "--world_size", "256", "--num_layers", "8"]
    words += ["--moe_first_dense_layers", "1", "--num_layers_first_stage", "auto", "--num_layers_last_stage", "auto"]
    words.append("--computation_enable")
    assert main([*words, "--every_stage", "--output", str(tmp_path / "job.csv")]) == 0
    for stage in range(4):
        alone = tmp_path / f"alone{stage}.csv"
        assert main([*words, "--pp_rank", str(stage), "--output", str(alone)]) == 0
        made = tmp_path / f"job-stage{stage}.csv"
        assert made.read_bytes() == alone.read_bytes()
        modules = [item.module.split(".") for item in Workload.load(made)[0] if item.module]
        assert {each[2] for each in modules if each[:2] == ["decoder", "layers"]} == {
            str(2 * stage),
            str(2 * stage + 1),
        }
    capsys.readouterr()
    assert main([*words, "--every_stage", "--pp_rank", "1", "--output", "-"]) == 2
    said = capsys.readouterr().err
    assert "--pp_rank 1: is one stage" in said and "--output -: needs a file's name" in said
    (tmp_path / "job.yaml").write_text("pp_rank: 1\n", encoding="utf-8")
    assert main([*words, "--every_stage", "--job", str(tmp_path / "job.yaml")]) == 2
    assert "--pp_rank 1: is one stage" in capsys.readouterr().err
    assert main(["generate", "-m", "7", "--dialect", "aicb", "--every_stage"]) == 2
    assert "--dialect aicb: has the schedule of the first stage" in capsys.readouterr().err
