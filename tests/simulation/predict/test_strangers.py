"""What strangers type and files that they have: GPUs' names, spreadsheets' CSV, Hugging Face's config.json, DDP."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from common.errors import InputProblems, MistakeList
from simulation.predict import certainty, hugging_face
from simulation.predict.iteration import BUCKET_BYTES, predict
from simulation.predict.job_table import job_of, jobs_of, preset, read_job, read_rows
from simulation.predict.machine import machine_of, machines, other_part
from simulation.predict.pieces import PieceTimes
from tests.simulation.predict.calling import asked
from tests.simulation.predict.test_commands import MODEL, refused
from tests.simulation.predict.test_counts import job
from tests.tiers import samples
from workloads.job.weights import parameters

NOT_OF_THE_MODEL = {"name", "seq"}


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("NVIDIA H100 80GB HBM3", "H100"), ("h100sxm5", "H100"), ("GB200 NVL72", "GB200"), ("A100-SXM4-80GB", "A100"),
     ("NVIDIA L40S", "L40S"), ("h100 HBM2e 96GB", "H100"), ("DGX A100 640GB", "A100")],
)  # fmt: skip
def test_a_measured_gpu_is_found_by_the_names_that_it_has(name: str, gpu: str) -> None:
    found = machine_of(name)
    assert found is not None and found.gpu == gpu and not other_part(name)


@pytest.mark.parametrize(
    "name",
    [
        "H100 PCIe",
        "NVIDIA A100-PCIE-80GB",
        "H100 NVL",
        "A100-SXM4-40GB",
        "RTX 4090",
        "H20",
        "A100 40 GB",
        "A100 40GiB",
        "A100-40G",
        "A100-SXM-64GB",
    ],
)
def test_a_gpu_that_nobody_measured_is_refused_and_not_taken_for_its_sister(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert name in refused(capsys, *MODEL, "--gpu", name)
    words = ("--model", "llama3_8b", "--gpus", "8", "--gbs", "8", "--mbs", "1")
    assert name in refused(capsys, "sweep", *words, "--gpu", name)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        (
            "\ufeffname,gpu,gpus,hidden,layers,heads,vocab,seq,measured_ms\na,H100,8,4096,32,32,32000,4096,409.8\n",
            409.8,
        ),
        (
            "\ufeffname;gpu;gpus;hidden;layers;heads;vocab;seq;measured_ms\r\na;H100;8;4096;32;32;32000;4096;409,8\r\n",
            409.8,
        ),
        (
            "name\tgpu\tgpus\thidden\tlayers\theads\tvocab\tseq\tmeasured_ms\na\tH100\t8\t4096\t32\t32\t32000\t4096\t\n",
            0,
        ),
        ("name, gpu ,gpus,hidden,layers,heads,vocab,seq,mine\na,H100,8,4096.0,32,32,32000,4096,x\n", 0),
    ],
)
def test_a_spreadsheets_csv_is_read(text: str, ms: float) -> None:
    path = Path("rows.csv")
    path.write_bytes(text.encode())
    rows = read_rows(path)
    (its,) = jobs_of(rows)
    assert its == jobs_of([{**rows[0], "": ""}])[0] and (its.hidden, its.vocab, its.gpus) == (4096, 32000, 8)
    assert float(rows[0].get("measured_ms") or 0) == ms


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("hidden", "NaN", "hidden NaN: must be a whole number"),
        ("measured_ms", "nan", "measured_ms nan: must be a number"),
        ("gpus", "", "gpus: is missing"), ("seq", "4k", "seq 4k: must be a whole number"),
        ("overlap", "maybe", "overlap maybe: is none of none"), ("overlap", "tpx", "overlap tpx"),
        ("ce_fusion", "(te)", "ce_fusion"),
        ("cp_comm", "p2p x", "cp_comm p2p x"), ("grad_dtype", "fp64", "grad_dtype fp64"),
        ("Hidden", "4096", "did you mean hidden?"),
    ],
)  # fmt: skip
def test_a_cell_that_says_nothing_is_a_mistake_with_its_line(column: str, cell: str, said: str) -> None:
    cells = {"name": "a", "gpu": "H100", "gpus": "8", "hidden": "4096", "layers": "32", "heads": "32", "vocab": "32000",
             "seq": "4096", column: cell}  # fmt: skip
    Path("rows.csv").write_text(f"{','.join(cells)}\n{','.join(cells.values())}\n")
    with pytest.raises(InputProblems, match=said.replace("?", "[?]")):
        jobs_of(read_rows(Path("rows.csv")))


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "config"),
    [("llama2_7b", "LlamaConfig"), ("mixtral_8x7b", "MixtralConfig"), ("deepseek_v3", "DeepseekV3Config")],
)
def test_a_models_own_configuration_is_read_as_its_preset(name: str, config: str) -> None:
    """What transformers writes of a model whose sizes are its defaults."""
    import transformers

    # How far positions reach is no default, but of each model's own file.
    reach = int(preset(name)["max_position_embeddings"])
    getattr(transformers, config)(max_position_embeddings=reach).save_pretrained(".")
    ours = {**read_job(Path("config.json")), "gpu": "H200", "gpus": "8"}
    theirs = {**preset(name), "gpu": "H200", "gpus": "8"}
    described, known = (job_of({**row, "seq": "4096", "name": "x"}, "") for row in (ours, theirs))
    # Of latent attention no width of a head is read.
    assert described == known


@pytest.mark.parametrize(
    ("more", "said"),
    [({}, "seq: is missing"), ({"text_config": {}}, "a model with images"),
     ({"num_experts": 8, "decoder_sparse_step": 2}, "decoder_sparse_step 2"),
     ({"num_experts": 8, "mlp_only_layers": [3]}, "mlp_only_layers [3]"),
     ({"n_routed_experts": 8, "moe_layer_freq": 2}, "moe_layer_freq 2"),
     ({"n_routed_experts": 8, "moe_layer_freq": [0, 1, 0, 1]}, "moe_layer_freq [0, 1, 0, 1]"),
     ({"model_type": "gemma3_text", "sliding_window": 512, "layer_types": ["full_attention", "sliding_attention"]},
      "layer_types ['full_attention', 'sliding_attention']"),
     ({"model_type": "gpt_oss", "sliding_window": 128, "layer_types": 3}, "layer_types 3"),
     ({"model_type": "qwen3", "sliding_window": 4096, "use_sliding_window": True, "max_window_layers": 9},
      "max_window_layers 9"),
     ({"model_type": "starcoder2"}, "model_type starcoder2: is none of llama, mistral"),
     ({"model_type": None}, "model_type None: is none of llama, mistral")],
)  # fmt: skip
def test_what_is_not_predicted_of_a_models_configuration_is_said(
    more: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000,
              "hidden_act": "silu", "sliding_window": None, "model_type": "llama", **more}  # fmt: skip
    path = Path("rows.csv").with_name("config.json")
    path.write_text(json.dumps(config))
    from simulation import cli

    assert cli.main(["predict", "--job", str(path), "--gpu", "H100", "--gpus", "8"]) == 2
    assert said in capsys.readouterr().err


def test_a_window_that_a_configuration_leaves_out_is_that_of_the_models_class() -> None:
    """Qwen2Config of transformers has sliding_window=4096."""
    qwen = {"model_type": "qwen2", "num_hidden_layers": 4, "use_sliding_window": True, "max_window_layers": 0}
    mistakes = MistakeList()
    assert hugging_face.columns(qwen, "config.json", mistakes)["sliding_window"] == 4096
    assert "sliding_window" not in hugging_face.columns(qwen | {"use_sliding_window": False}, "config.json", mistakes)


ATTENTION = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
# Types, the sizes above, more of the published config.json, and the parameters in 1e9 of safetensors' index.
PUBLISHED: dict[str, tuple[str, tuple[int, ...], dict[str, object], float]] = {
    "microsoft/Phi-3-mini-4k-instruct": (
        "phi3", (3072, 32, 32, 32, 32064), {"intermediate_size": 8192, "sliding_window": 2047}, 3.821080),
    "allenai/OLMo-2-1124-7B": ("olmo2", (4096, 32, 32, 32, 100352), {"intermediate_size": 11008}, 7.298617),
    "ibm-granite/granite-3.1-8b-base": (
        "granite", (4096, 40, 32, 8, 49152), {"intermediate_size": 12800, "tie_word_embeddings": True}, 8.170848),
    "mistralai/Mistral-7B-v0.1": (
        "mistral", (4096, 32, 32, 8, 32000), {"intermediate_size": 14336, "sliding_window": 4096}, 7.241732),
    "Qwen/Qwen3-8B": ("qwen3", (4096, 36, 32, 8, 151936), {"intermediate_size": 12288, "head_dim": 128}, 8.190735),
    "Qwen/Qwen3-30B-A3B": (
        "qwen3_moe", (2048, 48, 32, 4, 151936),
        {"intermediate_size": 6144, "head_dim": 128, "num_experts": 128, "num_experts_per_tok": 8,
         "moe_intermediate_size": 768, "mlp_only_layers": [], "decoder_sparse_step": 1}, 30.532122),
    "Qwen/Qwen1.5-MoE-A2.7B": (
        "qwen2_moe", (2048, 24, 16, 16, 151936),
        {"intermediate_size": 5632, "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
         "shared_expert_intermediate_size": 5632, "sliding_window": 32768, "use_sliding_window": False}, 14.315784),
    "google/gemma-2-9b": (
        "gemma2", (3584, 42, 16, 8, 256000), {"intermediate_size": 14336, "head_dim": 256, "sliding_window": 4096},
        9.241706),
    "google/gemma-3-1b-pt": (
        "gemma3_text", (1152, 26, 4, 1, 262144), {"intermediate_size": 6912, "head_dim": 256, "sliding_window": 512},
        0.999886),
    "openai/gpt-oss-20b": (
        "gpt_oss", (2880, 24, 64, 8, 201088),
        {"intermediate_size": 2880, "head_dim": 64, "num_local_experts": 32, "num_experts_per_tok": 4}, 20.914757),
    "openai/gpt-oss-120b": (
        "gpt_oss", (2880, 36, 64, 8, 201088),
        {"intermediate_size": 2880, "head_dim": 64, "num_local_experts": 128, "experts_per_token": 4}, 116.829156),
    "deepseek-ai/DeepSeek-V2-Lite": (
        "deepseek_v2", (2048, 27, 16, 16, 102400),
        {"intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 64, "num_experts_per_tok": 6,
         "n_shared_experts": 2, "first_k_dense_replace": 1, "moe_layer_freq": 1, "q_lora_rank": None,
         "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}, 15.706484),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_has_the_published_number_of_parameters(name: str) -> None:
    kind, sizes, more, billions = PUBLISHED[name]
    config = {"model_type": kind, **dict(zip(ATTENTION, sizes, strict=True)), **more}
    Path("config.json").write_text(json.dumps(config))
    its = job_of({**read_job(Path("config.json")), "gpu": "H200", "gpus": "8", "seq": "8192"}, name)
    # Without biases and norms of heads.
    assert parameters(its) == pytest.approx(billions * 1e9, rel=1e-3)
    windows = {
        "phi3": (2047, 0),
        "mistral": (4096, 0),
        "gemma2": (4096, 2),
        "gemma3_text": (512, 6),
        "gpt_oss": (128, 2),
    }
    assert (its.window, its.full_every) == windows.get(kind, (0, 0))


@pytest.mark.torch
@pytest.mark.parametrize("kind", sorted({*hugging_face.WINDOWS, "qwen2", "qwen3_moe", "llama", "olmo2"}))
def test_a_window_is_that_of_the_types_class(kind: str) -> None:
    """Without the list of layers' kinds, which older files do not have, and with it."""
    import transformers

    for more in ({}, {"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 0}):
        kinds = transformers.AutoConfig.for_model(kind, num_hidden_layers=12, **more).to_dict()
        mistakes = MistakeList()
        told = [
            hugging_face.columns({key: value for key, value in kinds.items() if key not in without}, "", mistakes)
            for without in ((), ("layer_types",))
        ]
        mistakes.check()
        listed, derived = ((each.get("sliding_window"), each.get("full_attention_every")) for each in told)
        assert listed == derived
        if types := kinds.get("layer_types"):
            assert (listed[0] is not None) == ("sliding_attention" in types)


def test_a_list_of_layers_with_experts_gives_the_dense_ones_before_them() -> None:
    mistakes = MistakeList()
    model = {"model_type": "deepseek_v3", "num_hidden_layers": 4, "n_routed_experts": 8}
    for more, dense in (({"moe_layer_freq": [0, 0, 1, 1]}, 2), ({"mlp_only_layers": [0, 1, 2]}, 3),
                        ({"first_k_dense_replace": 1}, 1)):  # fmt: skip
        assert hugging_face.columns({**model, **more}, "", mistakes)["first_dense_layers"] == dense
    mistakes.check()


def test_a_model_with_images_has_one_mistake() -> None:
    """Its own file has the sizes of the decoder inside of text_config alone."""
    Path("config.json").write_text(json.dumps({"model_type": "llava", "text_config": {"num_hidden_layers": 32}}))
    with pytest.raises(InputProblems) as refusal:
        read_job(Path("config.json"))
    assert len(refusal.value.problems) == 1 and "text_config" in str(refusal.value)


@pytest.mark.torch
@pytest.mark.parametrize("kind", sorted(hugging_face.TIED))
def test_a_type_of_model_has_the_gate_and_the_head_that_its_class_has(kind: str) -> None:
    import torch
    import transformers

    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 4, "vocab_size": 128, "num_local_experts": 4, "num_experts": 4, "n_group": 1,
             "topk_group": 1, "n_routed_experts": 4, "first_k_dense_replace": 1, "pad_token_id": 0}  # fmt: skip
    config = transformers.AutoConfig.for_model(kind, **sizes)
    assert bool(config.tie_word_embeddings) == hugging_face.TIED[kind]
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    assert any("gate_proj" in name or "gate_up_proj" in name or "w3" in name for name, _ in model.named_parameters())


@pytest.mark.parametrize(
    ("column", "cell", "field", "value"),
    [("overlap", "none (TP)", "overlap", False),
     ("grad_dtype", "bf16 (reduce)", "grad_bytes", 2), ("grad_dtype", "float32", "grad_bytes", 4),
     ("ce_fusion", "none (eager)", "fused_loss", False), ("ce_fusion", "not fused", "fused_loss", False),
     ("overlap", "P2P, DP", "overlap", True), ("overlap", "on", "overlap", True),
     ("recompute", "full (uniform)", "recompute", "full"), ("recompute", "none x", "recompute", "none")],
)  # fmt: skip
def test_the_first_word_of_a_cell_says_what_holds(column: str, cell: str, field: str, value: object) -> None:
    assert getattr(job(gpus=8, **{column: cell}), field) == value


def test_scaling_by_rows_that_has_no_effect_is_said() -> None:
    def said(**more: str | int) -> bool:
        found = predict(job("llama3_8b", gpus=8, precision="fp8 rowwise", **more), machines()["H100"])
        return any("scaling by rows has no effect" in note for note in certainty.interval(found).notes)

    assert said() and said(fsdp=1, tp=2) and not said(fsdp=1)


@pytest.mark.parametrize("scaling", ["mxfp8", "delayed"])
def test_a_scaling_that_torch_has_not_is_said_to_be_without_effect(scaling: str) -> None:
    def said(**more: str | int) -> bool:
        found = predict(job("llama3_8b", gpus=8, precision=f"fp8 {scaling}", **more), machines()["H100"])
        return any(f"{scaling} scaling has no effect" in note for note in certainty.interval(found).notes)

    assert said(fsdp=1) and not said() and not said(fsdp=1, framework="Megatron")


def test_interleaving_without_a_batch_takes_as_many_micro_batches_as_stages() -> None:
    assert job("llama3_70b", gpus=512, tp=8, pp=2, vpp=4).micro_batches == 2
    with pytest.raises(InputProblems, match=r"micro_batches 1: must divide by pp with vpp \(see gbs\)"):
        job("llama3_70b", gpus=512, tp=8, pp=2, vpp=4, gbs=32)


def drawn(seed: int) -> dict[str, str]:
    """A job at random, as a stranger might ask for it."""
    draw = random.Random(seed)
    choices: dict[str, tuple[Any, ...]] = {
        "gpu": tuple(machines()), "gpus": (1, 2, 7, 8, 16, 64, 72, 512, 10000), "tp": (1, 1, 2, 4, 8),
        "pp": (1, 1, 2, 4),
        "cp": (1, 1, 2, 4), "vpp": (1, 1, 2), "mbs": (1, 2, 4), "ep": (1, 1, 2, 8), "fsdp": (0, 0, 1), "ddp": (0, 0, 1),
        "recompute": ("none", "selective", "full"), "precision": ("bf16", "fp8", "fp8 rowwise", "nvfp4"),
        "seq": (128, 2048, 8192, 131072), "compile": (0, 1), "overlap": ("none", ""), "micro_batches": (1, 4, 8),
    }  # fmt: skip
    model = draw.choice(("llama3_8b", "llama3_70b", "llama3_405b", "mixtral_8x7b", "deepseek_v3", "qwen3_235b"))
    return {**preset(model), **{key: str(draw.choice(values)) for key, values in choices.items()}}


def test_no_figure_of_a_random_job_is_implausible() -> None:
    compared = 0
    for seed in samples(600, 6000):
        row = drawn(seed)
        try:
            its = job_of(row, "")
        except InputProblems:
            continue
        found, said = predict(its, machines()[its.gpu]), (seed, row)
        sure, held = certainty.interval(found), found.memory
        assert sure.low <= found.ms <= sure.high and 0 < found.mfu <= 1, said
        assert sum(found.classes.values()) == pytest.approx(found.ms) and min(found.classes.values()) >= 0, said
        assert min(held.weights, held.gradients, held.optimizer, held.activations, held.transient) >= 0, said
        compared += 1
        # As many tokens a GPU on twice the GPUs: neither much faster, nor of more memory.
        try:
            twice = job_of({**row, "gpus": str(2 * its.gpus)}, "")
        except InputProblems:
            continue
        more = predict(twice, machines()[its.gpu])
        assert its.dp == 1 or (more.ms > 0.8 * found.ms and more.memory.allocated <= 1.001 * held.allocated), said
    assert compared > 100


def test_jobs_that_share_the_times_of_their_pieces_are_predicted_as_each_alone() -> None:
    known, compared = PieceTimes(), 0
    for seed in samples(600, 6000):
        draw = random.Random(seed)
        # Of few models and sizes, so that pieces are often those of another layout.
        row = {**drawn(seed), **preset(draw.choice(("llama3_8b", "mixtral_8x7b")))}
        try:
            its = job_of({**row, "gpu": draw.choice(("H100", "B200")), "seq": draw.choice(("2048", "8192"))}, "")
        except InputProblems:
            continue
        alone = predict(its, machines()[its.gpu])
        assert predict(its, machines()[its.gpu], known=known) == alone, (seed, row)
        compared += 1
    assert compared > 100


def test_ddp_sums_whole_gradients_in_buckets_beside_the_last_backward_pass() -> None:
    def its(**more: str | int) -> Any:
        return predict(
            job("llama3_8b", **{"gpu": "H200", "seq": 4096, "recompute": "full", **more}), machines()["H200"]
        )

    alone, eight, sharded = its(gpus=1, ddp=1), its(gpus=8, ddp=1), its(gpus=8, fsdp=1)
    # Weights, gradients and two moments of float32 on each rank, and the weights in 16 bits that autocast keeps.
    held = eight.memory
    assert (held.weights + held.gradients + held.optimizer) * 2**30 == pytest.approx(16 * 8.030e9, rel=1e-3)
    assert sharded.memory.optimizer == pytest.approx(held.optimizer / 8)
    # The optimizer runs over all weights on each rank; what is computed is the same.
    assert eight.classes["optimizer"] == alone.classes["optimizer"] == pytest.approx(8 * sharded.classes["optimizer"])
    assert eight.classes["products"] == sharded.classes["products"]
    # The word vectors' gradients come last: 128256 x 4096 x 4 bytes, twice 7/8 of them at 300 GB/s or more.
    assert 0.004 < eight.classes["dp"] / 1e3 < 0.0125
    without = its(gpus=8, ddp=1, overlap="none").classes["dp"] / 1e3
    assert 2 * 7 / 8 * 4 * 8.030e9 / 371e9 < without < 2 * 2 * 7 / 8 * 4 * 8.030e9 / 371e9
    halves = its(gpus=8, ddp=1, overlap="none", grad_dtype="bf16").classes["dp"] / 1e3
    assert halves == pytest.approx(without / 2, rel=0.1)
    # Gradients are summed once an iteration, whatever it accumulates.
    assert its(gpus=8, ddp=1, micro_batches=4).classes["dp"] == pytest.approx(eight.classes["dp"])
    assert BUCKET_BYTES == 25 * 2**20


def test_ddp_updates_all_experts_on_each_rank_and_refuses_to_divide_them() -> None:
    def optimizer(**layout: int) -> float:
        return predict(job("mixtral_8x7b", gpu="H200", **layout), machines()["H200"]).classes["optimizer"]

    assert optimizer(gpus=8, ddp=1) == pytest.approx(optimizer(gpus=1, ddp=1))
    # Shards among 4 of 8 ranks, as memory has them.
    assert optimizer(gpus=8, fsdp=4) == pytest.approx(optimizer(gpus=4, fsdp=4))
    with pytest.raises(InputProblems, match="ep 8: must be 1 with ddp"):
        job("mixtral_8x7b", gpus=8, ddp=1, ep=8)


def test_ddp_says_that_its_gradients_are_views_and_is_no_layout_of_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    found = predict(job(gpus=8, ddp=1), machines()["H100"])
    assert any("gradient_as_bucket_view" in note for note in certainty.interval(found).notes)
    Path("rows.json").write_text(json.dumps({**preset("llama3_8b"), "ddp": 1}))
    Path("rows.csv").touch()
    words = ("--job", "rows.json", "--gpu", "H100", "--gpus", "8", "--gbs", "8")
    assert "ddp 1: layouts of Megatron-LM and FSDP2 are swept" in refused(capsys, "sweep", *words)


@pytest.mark.parametrize("kind", ["fsdp", "ddp"])
def test_ranks_that_share_a_layer_pay_for_its_sums_with_torch_as_with_megatron(kind: str) -> None:
    one = predict(job("llama3_8b", gpus=16, tp=8, **{kind: 1}), machines()["H100"]).classes
    other = predict(job(gpus=16, tp=8), machines()["H100"]).classes
    assert one["tp"] == pytest.approx(other["tp"])


@pytest.mark.parametrize("pp", [1, 4])
@pytest.mark.parametrize("ep", [1, 2])
def test_no_rank_holds_more_of_divided_experts_where_tensor_parallelism_grows(ep: int, pp: int) -> None:
    its = [
        predict(job("mixtral_8x7b", gpus=256, gbs=512, tp=tp, ep=ep, pp=pp, fsdp=1), machines()["H100"])
        for tp in (1, 2, 4, 8)
    ]
    held = [each.memory.reserved for each in its]
    assert held == sorted(held, reverse=True)
    # FSDP of torchtitan divides experts over fsdp x tp / ep ranks (ParallelDims.dp_shard_in_ep).
    assert [each.job.expert_shards for each in its] == [256 // pp // ep] * 4


@pytest.mark.parametrize(("fsdp", "ep"), [(6, 4), (2, 4)])
def test_shards_that_divide_no_experts_are_refused(fsdp: int, ep: int) -> None:
    with pytest.raises(InputProblems, match=f"fsdp {fsdp}: times tp must be a multiple of ep"):
        job("mixtral_8x7b", gpus=12 * ep // 4, gbs=48, fsdp=fsdp, ep=ep)
    assert job("mixtral_8x7b", gpus=12, gbs=48, fsdp=12, ep=4).expert_shards == 3


def test_copies_of_experts_are_summed_over_all_links_of_a_server_whatever_tensor_parallelism_is() -> None:
    def summed(**layout: int) -> float:
        its = job("mixtral_8x7b", gpus=64, gbs=128, overlap=0, **layout)
        sent = predict(its, machines()["H100"]).classes["dp"]
        return sent

    assert summed(tp=8) == pytest.approx(summed(tp=1), rel=0.2)


@pytest.mark.parametrize(("gpu", "pflops"), [("B200", 9), ("GB200", 10), ("GB300", 15), ("B300", 13.125)])
def test_utilisation_in_fp4_is_of_the_peak_that_the_vendor_gives(gpu: str, pflops: float) -> None:
    found = predict(job(gpu=gpu, gpus=8, precision="nvfp4"), machines()[gpu])
    assert found.mfu == pytest.approx(found.flops / 8 / (found.ms / 1e3) / (pflops * 1e15))


def test_ddp_and_shards_at_once_are_refused() -> None:
    with pytest.raises(InputProblems, match="ddp 1: each rank holds all weights: must be 0 with fsdp 8"):
        job(gpus=8, ddp=1, fsdp=8)


def test_a_job_file_with_a_models_configuration_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_text(json.dumps({
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "hidden_act": "silu", "model_type": "llama",
    }))  # fmt: skip
    words = ("--gpu", "H100", "--gpus", "8", "--seq", "8192")
    assert (
        asked(capsys, "predict", "--job", "config.json", *words)["predicted_ms"]
        == asked(capsys, "predict", "--model", "llama3_8b", *words)["predicted_ms"]
    )
