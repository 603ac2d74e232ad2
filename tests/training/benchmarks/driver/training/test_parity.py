"""Every layout trains like the plain loop in one process: one start of the workload runs all of them on real ranks."""

import json
import math
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import nn

from tests.tiers import NIGHTLY
from tests.training.benchmarks.driver.training import reference
from tests.training.benchmarks.driver.training.parity_workload import started
from tests.training.benchmarks.driver.training.tiny import GLOBAL_BATCH, STEPS, benchmark_of, config_of
from training.benchmarks.driver.training.settings.settings import TrainingConfig

# Trained in make nightly alone: others have what they have, if not in the same combination.
LATE = {
    *("compiled_tp", "compiled_selective", "tp_accumulation", "tp_sequence", "bf16_ddp", "fp16_fsdp", "overflow_ddp"),
    *("resume_ddp", "resume_tp", "fsdp_tp", "hsdp", "fp8_ddp", "fp8_compiled", "cp_bf16_compiled", "overflow_tp"),
    *("resume_pp_interleaved", "hsdp_tp", "fsdp_accumulation_recomputed", "ddp_accumulation", "lamb_tp"),
    *("resume_lamb", "resume_pp", "resume_cp", "tp_sequence_accumulation"),
}
Table = TypeVar("Table")
HALF = {"train_batch_size": GLOBAL_BATCH // 4, "gradient_accumulation_steps": 2}
HALF_OF_ALL = {"train_batch_size": GLOBAL_BATCH // 2, "gradient_accumulation_steps": 2}
PP: dict[str, Any] = {"pipeline_parallel_size": 2, "train_batch_size": 4, "gradient_accumulation_steps": 4}
DEEP = {"num_layers": 8 if NIGHTLY else 4}
# By day into the second epoch, of three steps; by night into the third, of eight.
TRAINED = STEPS if NIGHTLY else 5
SCHEDULE = {"max_steps": TRAINED} | ({} if NIGHTLY else {"train_samples": 3 * GLOBAL_BATCH})
TP: dict[str, Any] = {"tensor_parallel_size": 2, "train_batch_size": GLOBAL_BATCH}
FSDP: dict[str, Any] = {"strategy": "fsdp"}
CP: dict[str, Any] = {"context_parallel_size": 2, "train_batch_size": GLOBAL_BATCH}


def tonight(table: dict[str, Table]) -> dict[str, Table]:
    """Those of the layouts that are trained now."""
    return {name: layout for name, layout in table.items() if NIGHTLY or name not in LATE}


# Layout: model, settings, and how far the losses may be from the plain loop's.
EXACT = 1e-5
LAYOUTS: dict[str, tuple[str, dict[str, Any], float]] = tonight(
    {
        "ddp": ("llama", {}, EXACT),
        "ddp_accumulation": ("llama", HALF, EXACT),
        "fsdp": ("llama", FSDP, EXACT),
        "fsdp_accumulation_recomputed": ("llama", FSDP | HALF | {"activation_checkpointing": True}, EXACT),
        "fsdp_selective": ("llama", FSDP | HALF | {"activation_checkpointing": "selective"}, EXACT),
        "tp": ("llama", TP, EXACT),
        "tp_accumulation": ("llama", TP | HALF_OF_ALL, EXACT),
        "tp_sequence": ("llama", TP | {"sequence_parallel": True}, EXACT),
        "tp_sequence_accumulation": ("llama", TP | HALF_OF_ALL | {"sequence_parallel": True}, EXACT),
        "pp": ("llama", PP, EXACT),
        "cp": ("llama", CP, EXACT),
        "cp_bf16_compiled": ("llama", CP | FSDP | {"precision": "bf16", "compile_backend": "aot_eager"}, 2e-2),
        # The same graphs; to compile their backward passes, too, takes twenty CPU seconds.
        "compiled": ("llama", {"compile_backend": "aot_eager" if NIGHTLY else "eager"}, EXACT),
        "compiled_tp": ("llama", TP | FSDP | {"compile_backend": "aot_eager"}, EXACT),
        "compiled_selective": (
            "llama",
            FSDP | {"compile_backend": "aot_eager", "activation_checkpointing": "selective"},
            EXACT,
        ),
        "bert_ddp": ("bert", {}, EXACT),
        "bert_fsdp": ("bert", FSDP, EXACT),
        "glm_ddp": ("glm", {}, EXACT),
        "glm_fsdp": ("glm", FSDP, EXACT),
        "cpm_ddp": ("cpm", {}, EXACT),
        "cpm_fsdp": ("cpm", FSDP, EXACT),
        # bfloat16 has 8 bits, float16 has 11: relative errors of 4e-3 and 5e-4 in each product.
        "bf16_ddp": ("llama", {"precision": "bf16"}, 2e-2),
        "bf16_fsdp": ("llama", FSDP | {"precision": "bf16"}, 2e-2),
        # e4m3 has 4 bits, but a scale of its own for each row of an operand.
        "fp8_fsdp": ("llama", FSDP | {"precision": "bf16", "fp8": "rowwise"}, 2e-2),
        "fp8_ddp": ("llama", {"precision": "bf16", "fp8": "tensorwise"}, 2e-2),
        "fp8_compiled": (
            "llama",
            FSDP
            | {"precision": "bf16", "fp8": "rowwise"}
            | {"compile_backend": "aot_eager", "activation_checkpointing": "selective"},
            2e-2,
        ),
        "fp16_ddp": ("llama", {"precision": "fp16"}, 2e-3),
        "fp16_fsdp": ("llama", FSDP | {"precision": "fp16"}, 2e-3),
    }
)
LAMB: dict[str, dict[str, Any]] = tonight({"lamb_ddp": {}, "lamb_fsdp": FSDP, "lamb_tp": TP})
DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
RESUMED: dict[str, tuple[str, dict[str, Any]]] = tonight(
    {
        "resume_ddp": ("cpm", DROPOUT | {"precision": "fp16"}),
        "resume_fsdp": ("cpm", DROPOUT | FSDP | {"precision": "fp16"}),
        "resume_lamb": ("bert", DROPOUT | FSDP | {"optimizer": "lamb"}),
        "resume_tp": ("llama", TP),
        "resume_pp": ("llama", PP),
        "resume_cp": ("llama", CP | FSDP),
        "resume_pp_interleaved": ("llama", DEEP | PP | FSDP | {"pipeline_stages_per_rank": 2}),
        "resume_tp_sequence": ("llama", TP | {"sequence_parallel": True}),
    }
)
# As many after the checkpoint as before it, of which 2 in the next epoch.
RESUME_STEPS, RESUME_SCHEDULE = (10, {}) if NIGHTLY else (6, {"train_samples": 4 * GLOBAL_BATCH})
FEW_STEPS = 6 if NIGHTLY else 3  # where layouts are known to be right with fewer ranks
FOUR_RANKS: dict[str, Any] = TP | FSDP | {"train_batch_size": GLOBAL_BATCH // 2}
HSDP: dict[str, Any] = {"strategy": "hsdp", "shard_size": 2, "train_batch_size": GLOBAL_BATCH // 4}
TWO_DIMENSIONS: dict[str, dict[str, Any]] = tonight(
    {
        "fsdp_tp": FOUR_RANKS,
        "fsdp_tp_sequence": FOUR_RANKS | {"sequence_parallel": True},
        "hsdp": HSDP,
        "hsdp_accumulation": HSDP | {"train_batch_size": GLOBAL_BATCH // 8, "gradient_accumulation_steps": 2},
        "hsdp_tp": FOUR_RANKS | {"strategy": "hsdp", "shard_size": 1},
    }
)
IN_TWO = {"train_batch_size": 2, "gradient_accumulation_steps": 4}
# Layout: ranks, settings.
PIPELINES: dict[str, tuple[int, dict[str, Any]]] = {
    "pp_interleaved_fsdp": (4, PP | IN_TWO | FSDP | {"pipeline_stages_per_rank": 2}),
} | (
    {
        "pp_tp_sequence": (4, PP | {"tensor_parallel_size": 2, "sequence_parallel": True}),
        "pp_ddp": (4, PP | IN_TWO),
        "pp_fsdp_recomputed": (4, PP | IN_TWO | FSDP | {"activation_checkpointing": True}),
        "pp4": (4, PP | {"pipeline_parallel_size": 4, "train_batch_size": 2, "gradient_accumulation_steps": 8}),
        "pp4_interleaved_fsdp": (8, PP | IN_TWO | FSDP | {"pipeline_parallel_size": 4, "pipeline_stages_per_rank": 2}),
        "pp4_interleaved_ddp": (8, PP | IN_TWO | {"pipeline_parallel_size": 4, "pipeline_stages_per_rank": 2}),
        "pp_fsdp_tp": (8, PP | IN_TWO | FSDP | {"tensor_parallel_size": 2, "compile_backend": "aot_eager"}),
    }
    if NIGHTLY
    else {}
)
# Of which each sample's sequence is divided. The model has two key-value heads.
CONTEXTS: dict[str, tuple[int, dict[str, Any]]] = {
    "cp_ddp": (4, CP | {"train_batch_size": GLOBAL_BATCH // 2}),
} | (
    {
        "cp_tp_sequence": (4, CP | FSDP | {"tensor_parallel_size": 2, "sequence_parallel": True}),
        "cp4_fsdp_recomputed": (
            4,
            CP | HALF_OF_ALL | FSDP | {"context_parallel_size": 4, "activation_checkpointing": True},
        ),
        "cp_hsdp_compiled": (4, CP | HSDP | {"train_batch_size": GLOBAL_BATCH // 2, "compile_backend": "aot_eager"}),
        "cp_tp": (4, CP | FSDP | {"tensor_parallel_size": 2}),
        "cp4_fsdp_selective": (
            8,
            CP | HALF | FSDP | {"context_parallel_size": 4, "activation_checkpointing": "selective"},
        ),
        "cp_fsdp_tp_compiled": (8, CP | HALF | FSDP | {"tensor_parallel_size": 2, "compile_backend": "aot_eager"}),
        "cp_hsdp": (8, CP | HALF | HSDP | {"shard_size": 4, "train_batch_size": GLOBAL_BATCH // 8}),
    }
    if NIGHTLY
    else {}
)
FROM_SHARDS: dict[str, tuple[str, dict[str, Any]]] = {
    "from_shards_of_tp": ("tp", {}),
    "from_shards_of_fsdp": ("fsdp", TP),
}
WORKLOAD_SECONDS = 1500.0  # ends a hang: some 50 trainings one after the other
pytestmark = pytest.mark.timeout(WORKLOAD_SECONDS + 60)
OVERFLOWING_SCALE = 2.0**24
OVERFLOW_STEPS = STEPS if NIGHTLY else 12
OVERFLOWING: dict[str, dict[str, Any]] = tonight({"overflow_ddp": {}, "overflow_fsdp": FSDP, "overflow_tp": TP})


def _layouts(folder: Path) -> dict[str, Any]:
    """What the workload is to train, by name."""
    layouts: dict[str, Any] = {
        name: {"model": m, "settings": SCHEDULE | s, "steps": TRAINED} for name, (m, s, _) in LAYOUTS.items()
    }
    for name, settings in LAMB.items():
        settings = SCHEDULE | settings | {"optimizer": "lamb"}
        layouts[name] = {"model": "llama", "settings": settings, "steps": TRAINED}
    for name, (model, settings) in RESUMED.items():
        half = settings.get("train_batch_size", GLOBAL_BATCH // 2) // 2
        early = RESUME_STEPS // 2 - 1
        changes = [{"seed": 1}, {"max_steps": early, "lr_decay_steps": STEPS}, {"train_batch_size": half}]
        settings = RESUME_SCHEDULE | settings
        layouts[name] = {"model": model, "settings": settings, "steps": RESUME_STEPS, "refused_changes": changes}
    for name, (source, settings) in FROM_SHARDS.items():
        settings = SCHEDULE | settings | {"init_checkpoint": str(folder / f"{source}.hf")}
        layouts[name] = {"model": "llama", "settings": settings, "steps": 0}
    for name, settings in {"from_file_ddp": {}, "from_file_fsdp": FSDP}.items():
        settings = SCHEDULE | settings | {"init_checkpoint": str(folder / "ddp.end.pt")}
        layouts[name] = {"model": "llama", "settings": settings, "steps": 0}
    for name, settings in OVERFLOWING.items():
        settings = settings | {"precision": "fp16", "init_loss_scale": OVERFLOWING_SCALE}
        layouts[name] = {"model": "llama", "settings": settings, "steps": OVERFLOW_STEPS}
    layouts["tp_uneven"] = {"model": "llama", "settings": {"tensor_parallel_size": 4, "num_key_value_heads": 4}}
    layouts["not_shared"] = {"model": "llama", "settings": {}, "folder_of_each_rank": True}
    for name, settings in TWO_DIMENSIONS.items():
        layouts[name] = {"ranks": 4, "model": "llama", "settings": SCHEDULE | settings, "steps": FEW_STEPS}
    if NIGHTLY:
        settings = SCHEDULE | HSDP | {"optimizer": "lamb"}
        layouts["lamb_hsdp"] = {"ranks": 4, "model": "llama", "settings": settings, "steps": FEW_STEPS}
    layouts["hsdp_uneven"] = {"ranks": 4, "model": "llama", "settings": HSDP | {"shard_size": 3}}
    layouts["hsdp_sabotaged"] = {"ranks": 4, "model": "llama", "settings": HSDP, "sabotage": True}
    for name, (ranks, settings) in PIPELINES.items():
        layouts[name] = {"ranks": ranks, "model": "llama", "settings": DEEP | settings, "steps": FEW_STEPS}
    for name, (ranks, settings) in CONTEXTS.items():
        layouts[name] = {"ranks": ranks, "model": "llama", "settings": settings, "steps": FEW_STEPS}
    layouts["pp_uneven"] = {"ranks": 4, "model": "llama", "settings": DEEP | PP | {"pipeline_parallel_size": 3}}
    layouts["pp_sabotaged"] = {"ranks": 4, "model": "llama", "settings": PP | IN_TWO, "sabotage": True}
    sabotaged = CP | {"train_batch_size": GLOBAL_BATCH // 2}
    layouts["cp_sabotaged"] = {"ranks": 4, "model": "llama", "settings": sabotaged, "sabotage": True}
    for name, settings in {"cp_alone": {}, "cp_alone_fsdp": FSDP}.items():
        layouts[name] = {"model": "llama", "settings": CP | settings, "sabotage": True}
    layouts["ddp_tp"] = {"ranks": 4, "model": "llama", "settings": FOUR_RANKS | {"strategy": "ddp"}}
    return {name: {"ranks": 2} | layout for name, layout in layouts.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("parity")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    return started(folder, _layouts(folder), WORKLOAD_SECONDS)


@pytest.fixture(scope="module")
def plain(folder: Path, found: dict[str, Any]) -> dict[str, tuple[list[float], dict[str, torch.Tensor]]]:
    """The plain loop of each model, from the weights that the ranks began with."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loops = {}
    for name, model in {"ddp": "llama", "bert_ddp": "bert", "glm_ddp": "glm", "cpm_ddp": "cpm"}.items():
        start = torch.load(folder / f"{name}.start.pt")
        loops[model] = reference.train(model, config_of(model, **SCHEDULE), start, TRAINED)
    torch.set_num_threads(threads)
    return loops


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_trains_like_the_plain_loop(
    name: str,
    found: dict[str, Any],
    plain: dict[str, tuple[list[float], dict[str, torch.Tensor]]],
    folder: Path,
) -> None:
    model, _, allowed = LAYOUTS[name]
    losses, end = plain[model]
    assert found[name]["losses"] == pytest.approx(losses, abs=allowed, rel=0)
    assert losses[-1] < losses[0], "the plain loop itself learns"
    assert len(losses) == TRAINED
    trained = torch.load(folder / f"{name}.end.pt")
    for key, weight in end.items():
        # Adam divides by a gradient's own size: tiny gradients carry their rounding errors into the weights.
        torch.testing.assert_close(trained[key], weight, atol=max(10 * allowed, 1e-4), rtol=0)


class _Llama(nn.Module):
    """transformers' LLaMA."""

    def __init__(self, config: TrainingConfig, transformers: Any) -> None:
        super().__init__()
        settings = config.model_dump()
        self.net = transformers.LlamaForCausalLM(
            transformers.LlamaConfig(
                vocab_size=settings["vocab_size"],
                hidden_size=config.hidden_size,
                intermediate_size=settings["ffn_hidden_size"],
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_attention_heads,
                num_key_value_heads=settings["num_key_value_heads"],
                max_position_embeddings=settings["seq_length"],
                rms_norm_eps=settings["norm_eps"],
                tie_word_embeddings=False,
            )
        )

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = self.net(batch["tokens"], labels=batch["tokens"]).loss
        return loss


class _Bert(nn.Module):
    """transformers' BERT."""

    def __init__(self, config: TrainingConfig, transformers: Any) -> None:
        super().__init__()
        settings = config.model_dump()
        self.net = transformers.BertForPreTraining(
            transformers.BertConfig(
                vocab_size=settings["vocab_size"],
                hidden_size=config.hidden_size,
                num_hidden_layers=config.num_layers,
                num_attention_heads=config.num_attention_heads,
                intermediate_size=settings["ffn_hidden_size"],
                max_position_embeddings=settings["max_position_embeddings"],
                hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        labels = torch.full_like(batch["input_ids"], -100)
        labels.scatter_(1, batch["masked_lm_positions"], batch["masked_lm_ids"])
        loss: torch.Tensor = self.net(
            input_ids=batch["input_ids"],
            attention_mask=batch["input_mask"],
            token_type_ids=batch["segment_ids"],
            labels=labels,
            next_sentence_label=batch["next_sentence_labels"],
        ).loss
        return loss


@pytest.mark.parametrize(("model", "start", "theirs"), [("llama", "ddp", _Llama), ("bert", "bert_ddp", _Bert)])
def test_the_plain_loop_trains_as_transformers_does(
    model: str,
    start: str,
    theirs: type[_Llama | _Bert],
    folder: Path,
    plain: dict[str, tuple[list[float], dict[str, torch.Tensor]]],
) -> None:
    config = config_of(model, **SCHEDULE)
    module = theirs(config, pytest.importorskip("transformers"))
    missing, unexpected = module.net.load_state_dict(torch.load(folder / f"{start}.start.pt"), strict=False)
    assert unexpected == [] and {name.rpartition("decoder.")[2] for name in missing} <= {"weight", "bias"}, "tied ones"
    module.net.tie_weights()
    assert reference.train_net(module, module, model, config, TRAINED) == pytest.approx(plain[model][0], abs=EXACT)


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_starts_from_the_same_weights(name: str, found: dict[str, Any], folder: Path) -> None:
    first = {"llama": "ddp", "bert": "bert_ddp", "glm": "glm_ddp", "cpm": "cpm_ddp"}[LAYOUTS[name][0]]
    start = torch.load(folder / f"{name}.start.pt")
    for key, weight in torch.load(folder / f"{first}.start.pt").items():
        assert torch.equal(start[key], weight)


@pytest.mark.parametrize("name", ["ddp", "tp", "pp", "cp", "bert_fsdp", "glm_fsdp", "cpm_ddp"])
def test_an_evaluation_counts_every_sample_once(name: str, found: dict[str, Any], folder: Path) -> None:
    model, settings, _ = LAYOUTS[name]
    config = config_of(model, **(SCHEDULE | settings))
    net = reference.model_with(model, config, torch.load(folder / f"{name}.end.pt")).eval()
    samples = benchmark_of(model).synthetic_data(config).evaluation
    with torch.no_grad():
        results = net(samples[list(range(len(samples)))])
    metrics = {key: float(pair[0] / pair[1]) for key, pair in results.items() if key != "loss"}
    assert found[name]["after"].keys() - {"time", "global_steps", "one_training"} == metrics.keys()
    for key, value in metrics.items():
        assert found[name]["after"][key] == pytest.approx(value, abs=1e-4), key


@pytest.mark.parametrize("name", [*LAYOUTS, *LAMB, *TWO_DIMENSIONS, *PIPELINES, *CONTEXTS, *OVERFLOWING])
def test_no_layout_seems_to_be_several_trainings(name: str, found: dict[str, Any]) -> None:
    before, after = (found[name][when]["one_training"] for when in ("before", "after"))
    assert before["departed"] is None is after["departed"]
    assert before["parameters"] != after["parameters"]
    assert after["shared_loss_spread"] == 0.0
    assert len(after["data_order"]) == len(set(after["data_order"]))


@pytest.mark.parametrize("name", ["from_file_ddp", "from_file_fsdp"])
def test_a_run_starts_from_the_weights_of_a_file(name: str, found: dict[str, Any]) -> None:
    assert found[name]["before"]["eval_loss"] == pytest.approx(found["ddp"]["after"]["eval_loss"], abs=EXACT)
    assert found["ddp"]["before"]["eval_loss"] > found["ddp"]["after"]["eval_loss"] + (1 if NIGHTLY else 0.5)


@pytest.mark.parametrize("name", FROM_SHARDS)
def test_every_layout_writes_whole_weights_in_shards_that_others_read(
    name: str, found: dict[str, Any], folder: Path
) -> None:
    source, _ = FROM_SHARDS[name]
    index = json.loads((folder / f"{source}.hf" / "model.safetensors.index.json").read_text())["weight_map"]
    written = torch.load(folder / f"{source}.end.pt")
    assert index.keys() == written.keys() and len(set(index.values())) > 2
    read = torch.load(folder / f"{name}.start.pt")
    assert all(torch.equal(read[key], weight) for key, weight in written.items())
    assert found[name]["before"]["eval_loss"] == pytest.approx(found[source]["after"]["eval_loss"], abs=EXACT)


def test_products_in_fp8_are_others_than_in_bf16(found: dict[str, Any]) -> None:
    assert found["fp8_fsdp"]["losses"] != found["bf16_fsdp"]["losses"]
    if NIGHTLY:
        assert found["fp8_compiled"]["losses"] == pytest.approx(found["fp8_fsdp"]["losses"], abs=EXACT)


def test_lamb_is_the_same_sharded_or_not(found: dict[str, Any]) -> None:
    plain_lamb = found["lamb_ddp"]["losses"]
    assert len(plain_lamb) == TRAINED and plain_lamb != found["ddp"]["losses"]
    for name in LAMB:
        assert found[name]["losses"] == pytest.approx(plain_lamb, abs=EXACT, rel=0)


def test_the_loss_is_scaled_in_fp16_only(found: dict[str, Any]) -> None:
    half = {name: found[name]["loss_scales"] for name in LAYOUTS if name.startswith(("fp16", "bf16"))}
    assert half == {name: [65536.0 if name.startswith("fp16") else None] * 2 for name in half} and len(half) > 1


@pytest.mark.parametrize("name", OVERFLOWING)
def test_an_overflow_halves_the_scale_and_leaves_the_step_out_on_all_ranks(name: str, found: dict[str, Any]) -> None:
    losses, scales = found[name]["losses"], found[name]["loss_scales"]
    assert scales[0] == scales[1] < OVERFLOWING_SCALE
    skipped = math.log2(OVERFLOWING_SCALE / scales[0])
    assert 2 <= skipped == int(skipped) <= OVERFLOW_STEPS - 5
    assert all(map(math.isfinite, losses))
    assert losses[-1] < losses[0] - 0.3, "once the scale fits, it learns"


@pytest.mark.parametrize("name", RESUMED)
def test_a_resumed_run_has_the_very_same_curve(name: str, found: dict[str, Any]) -> None:
    result = found[name]
    assert result["at"] == RESUME_STEPS // 2
    assert result["broken"] == result["straight"]
    assert len(result["broken"]) == RESUME_STEPS
    assert result["same_weights"]


@pytest.mark.parametrize("name", RESUMED)
def test_a_checkpoint_of_other_settings_or_a_broken_one_is_named(name: str, found: dict[str, Any]) -> None:
    seed, steps, batch = found[name]["refusals"]
    half = RESUME_STEPS // 2
    assert f"step-{half:08d} is of other settings: seed was 42, is 1" in seed
    assert f"is after step {half}, the run ends after step {half - 1}" in steps
    assert "global_batch_size was 16, is 8" in batch
    assert f"step-{half:08d}: broken checkpoint" in found[name]["damaged"]


def test_a_checkpoint_folder_that_ranks_do_not_share_is_refused(found: dict[str, Any], folder: Path) -> None:
    message = found["not_shared"]["refused"]
    assert message.startswith(f"checkpoint_dir: {folder}/checkpoints0: rank(s) 1 do not see there what rank 0 writes")
    assert not any((folder / "checkpoints0").iterdir()), "no mark is left"


def test_ranks_that_cannot_share_a_layer_are_refused(found: dict[str, Any]) -> None:
    assert found["tp_uneven"]["refused"] == "tensor_parallel_size = 4 does not divide the 2 ranks"


@pytest.mark.parametrize("name", TWO_DIMENSIONS)
def test_two_dimensions_on_four_ranks(
    name: str, found: dict[str, Any], plain: dict[str, tuple[list[float], dict[str, torch.Tensor]]]
) -> None:
    assert found[name]["losses"] == pytest.approx(plain["llama"][0][:FEW_STEPS], abs=EXACT, rel=0)


@pytest.mark.nightly
def test_lamb_is_the_same_on_replicas_of_shards(found: dict[str, Any]) -> None:
    assert found["lamb_hsdp"]["losses"] == pytest.approx(found["lamb_ddp"]["losses"][:FEW_STEPS], abs=EXACT, rel=0)


def test_replicas_of_shards_that_lose_each_other_are_found(found: dict[str, Any]) -> None:
    """Replicas that average within themselves alone, shards that are averaged over the replicas alone, and a bit."""
    sabotaged = found["hsdp_sabotaged"]
    for kind in ("replicas apart", "shards apart"):
        assert sabotaged[kind] == "rank 0 trains alone: its gradient is not the average over the data-parallel ranks"
    assert sabotaged["none"] is None
    assert sabotaged["bit"].startswith("after step 0 rank 3 has other parameters than rank 1, first model.")


def test_replicas_of_a_size_that_does_not_fit_are_refused(found: dict[str, Any]) -> None:
    assert found["hsdp_uneven"]["refused"] == "shard_size = 3 does not divide the 4 data-parallel ranks"


def _plain_norms(start: dict[str, torch.Tensor], settings: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Losses and norms of the gradients of the first steps of the plain loop."""
    norms: list[float] = []
    losses, _ = reference.train("llama", config_of("llama", **settings), start, STEPS, norms)
    assert losses[-1] < losses[0]
    return losses[:FEW_STEPS], norms[:FEW_STEPS]


@pytest.fixture(scope="module")
def deep(folder: Path, found: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Those of the model that pipelines have."""
    start = torch.load(folder / "pp_interleaved_fsdp.start.pt")
    assert len(start) == 3 + DEEP["num_layers"] * 9, "the parameters of all stages"
    return _plain_norms(start, DEEP)


@pytest.fixture(scope="module")
def flat(folder: Path, found: dict[str, Any]) -> tuple[list[float], list[float]]:
    """Those of the model that the other layouts have."""
    return _plain_norms(torch.load(folder / "cp_ddp.start.pt"), {})


@pytest.mark.parametrize("name", PIPELINES)
def test_a_pipeline_trains_like_the_plain_loop(
    name: str, found: dict[str, Any], folder: Path, deep: tuple[list[float], list[float]]
) -> None:
    losses, norms = deep
    assert found[name]["losses"] == pytest.approx(losses, abs=EXACT, rel=0)
    assert found[name]["grad_norms"] == pytest.approx(norms, rel=EXACT)
    start = torch.load(folder / f"{name}.start.pt")
    assert all(
        torch.equal(start[key], weight) for key, weight in torch.load(folder / "pp_interleaved_fsdp.start.pt").items()
    )


def test_replicas_of_a_stage_that_differ_are_found(found: dict[str, Any]) -> None:
    assert found["pp_sabotaged"] == {
        "none": None,
        "replicas apart": "rank 0 trains alone: its gradient is not the average over the data-parallel ranks",
        "bit": "after step 0 rank 3 has other parameters than rank 2, first model.layers.1.self_attn.q_proj.weight",
    }


@pytest.mark.parametrize("name", CONTEXTS)
def test_divided_sequences_train_like_the_plain_loop(
    name: str, found: dict[str, Any], flat: tuple[list[float], list[float]]
) -> None:
    losses, norms = flat
    assert found[name]["losses"] == pytest.approx(losses, abs=EXACT, rel=0)
    assert found[name]["grad_norms"] == pytest.approx(norms, rel=EXACT)
    readers = CONTEXTS[name][0] // CONTEXTS[name][1]["context_parallel_size"]
    readers //= CONTEXTS[name][1].get("tensor_parallel_size", 1)
    assert len(found[name]["after"]["one_training"]["data_order"]) == readers


def test_ranks_with_parts_of_the_same_samples_that_differ_are_found(found: dict[str, Any]) -> None:
    assert found["cp_sabotaged"] == {
        "none": None,
        "replicas apart": "rank 0 trains alone: its gradient is not the average over the data-parallel ranks",
        "bit": "after step 0 rank 3 has other parameters than rank 0, first model.layers.1.self_attn.q_proj.weight",
    }


def test_ranks_that_only_divide_a_sequence_and_do_not_average_are_found(found: dict[str, Any]) -> None:
    alone = "rank 1 trains alone: its gradient is not the average over the data-parallel ranks"
    assert (found["cp_alone"]["none"], found["cp_alone"]["replicas apart"]) == (None, alone)
    assert (found["cp_alone_fsdp"]["none"], found["cp_alone_fsdp"]["shards apart"]) == (None, alone)


def test_a_pipeline_of_ranks_that_do_not_divide_is_refused(found: dict[str, Any]) -> None:
    assert found["pp_uneven"]["refused"] == "pipeline_parallel_size = 3 does not divide the 4 ranks"


def test_tensor_parallel_replicas_are_refused(found: dict[str, Any]) -> None:
    assert "need strategy = 'fsdp'" in found["ddp_tp"]["refused"]
