"""Experts that are divided over ranks train like one process: one start of four ranks runs all layouts."""

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.tiers import NIGHTLY
from tests.training.benchmarks.driver.training import reference
from tests.training.benchmarks.driver.training.parity_workload import started
from tests.training.benchmarks.driver.training.tiny import GLOBAL_BATCH, STEPS, config_of
from tests.training.benchmarks.mixtral.test_mixtral_model import theirs_of
from training.benchmarks.mixtral.pytorch.config import Config

RUN_STEPS, RESUME_STEPS = 6 if NIGHTLY else 3, 10
EXACT = 1e-5
FSDP: dict[str, Any] = {"strategy": "fsdp", "train_batch_size": GLOBAL_BATCH // 4, "max_steps": RUN_STEPS}
TWO_MICRO_BATCHES: dict[str, Any] = {"train_batch_size": GLOBAL_BATCH // 8, "gradient_accumulation_steps": 2}
EIGHT = FSDP | {"train_batch_size": GLOBAL_BATCH // 8}
# Whose losses are those of the plain loop.
EXACTLY: dict[str, tuple[int, dict[str, Any]]] = {
    "replicas": (4, FSDP | {"strategy": "ddp"}),
    "two_copies_recomputed": (4, FSDP | {"expert_parallel_size": 2, "activation_checkpointing": True}),
}
if NIGHTLY:
    EXACTLY |= {
        "divided_sequences": (
            4,
            FSDP | {"expert_parallel_size": 2, "context_parallel_size": 2, "train_batch_size": GLOBAL_BATCH // 2},
        ),
        "one_copy_selective": (4, FSDP | {"expert_parallel_size": 4, "activation_checkpointing": "selective"}),
        "eight_one_copy": (8, EIGHT | {"expert_parallel_size": 8}),
        "eight_two_copies": (8, EIGHT | {"expert_parallel_size": 4}),
        "eight_four_copies": (8, EIGHT | {"expert_parallel_size": 2, "activation_checkpointing": "selective"}),
        "one_copy": (4, FSDP | {"expert_parallel_size": 4}),
        "two_copies": (4, FSDP | {"expert_parallel_size": 2}),
        "hsdp": (4, FSDP | {"strategy": "hsdp", "shard_size": 2}),
    }
# Trained in make nightly alone, as what is resumed: test_parity.py has both of other models.
ACCUMULATED: dict[str, dict[str, Any]] = {
    "accumulated": FSDP | TWO_MICRO_BATCHES,
    "accumulated_two_copies": FSDP | TWO_MICRO_BATCHES | {"expert_parallel_size": 2},
}
HALF: dict[str, Any] = {"half": FSDP | {"precision": "bf16", "expert_parallel_size": 2}}
LATE = ACCUMULATED | HALF if NIGHTLY else {}
RESUMED: dict[str, Any] = FSDP | {"expert_parallel_size": 2, "max_steps": STEPS}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("experts")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    layouts = {name: {"ranks": ranks, "settings": settings} for name, (ranks, settings) in EXACTLY.items()}
    layouts |= {name: {"ranks": 4, "settings": settings} for name, settings in LATE.items()}
    if NIGHTLY:
        changes = [{"expert_parallel_size": 4}, {"num_experts": 4}]
        layouts["resumed"] = {"ranks": 4, "settings": RESUMED, "steps": RESUME_STEPS, "refused_changes": changes}
    alone = FSDP | {"context_parallel_size": 4, "expert_parallel_size": 4, "train_batch_size": GLOBAL_BATCH}
    layouts["alone"] = {"ranks": 4, "settings": alone, "sabotage": True}
    every = {name: {"model": "mixtral", "steps": RUN_STEPS} | each for name, each in layouts.items()}
    return started(folder, every, 500.0)


@pytest.fixture(scope="module")
def plain(folder: Path, found: dict[str, Any]) -> tuple[list[float], list[float], dict[str, torch.Tensor]]:
    """Losses, norms of the gradients and last weights of transformers' Mixtral in one process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = config_of("mixtral", max_steps=RUN_STEPS)
    assert isinstance(config, Config)
    net = theirs_of(config).train()
    net.load_state_dict(torch.load(folder / "replicas.start.pt"))
    norms: list[float] = []

    def loss_of(batch: dict[str, torch.Tensor]) -> torch.Tensor:
        loss: torch.Tensor = net(batch["tokens"], labels=batch["tokens"]).loss
        return loss

    losses = reference.train_net(net, loss_of, "mixtral", config, RUN_STEPS, norms)
    torch.set_num_threads(threads)
    return losses, norms, {name: parameter.detach() for name, parameter in net.named_parameters()}


@pytest.mark.parametrize("name", EXACTLY)
def test_divided_experts_train_as_transformers_does_in_one_process(
    name: str, found: dict[str, Any], plain: tuple[list[float], list[float], dict[str, torch.Tensor]], folder: Path
) -> None:
    losses, norms, end = plain
    assert len(losses) == RUN_STEPS and losses[-1] < losses[0]
    assert found[name]["losses"] == pytest.approx(losses, abs=EXACT, rel=0)
    assert found[name]["grad_norms"] == pytest.approx(norms, abs=0, rel=EXACT)
    trained, start = (torch.load(folder / f"{name}.{when}.pt") for when in ("end", "start"))
    for key, weight in end.items():
        torch.testing.assert_close(trained[key], weight, atol=1e-4, rtol=0)
        assert not torch.equal(trained[key], start[key]), key


@pytest.mark.nightly
def test_micro_batches_of_divided_experts_are_those_of_whole_ones(found: dict[str, Any]) -> None:
    whole, divided = (found[name] for name in ACCUMULATED)
    for figure in ("losses", "grad_norms"):
        assert divided[figure] == pytest.approx(whole[figure], abs=EXACT)


@pytest.mark.nightly
def test_in_bf16_losses_differ_by_rounding(
    found: dict[str, Any], plain: tuple[list[float], list[float], dict[str, torch.Tensor]]
) -> None:
    assert found["half"]["losses"] == pytest.approx(plain[0], abs=2e-2)
    assert found["half"]["losses"] != pytest.approx(plain[0], abs=1e-4)


@pytest.mark.parametrize("name", [*EXACTLY, *LATE])
def test_ranks_with_other_experts_are_one_training(name: str, found: dict[str, Any]) -> None:
    before, after = (found[name][when]["one_training"] for when in ("before", "after"))
    assert before["departed"] is None is after["departed"]
    assert before["parameters"] != after["parameters"]
    assert 1 < found[name]["figures"]["expert_load"] < 4


def test_the_load_is_that_of_all_ranks(found: dict[str, Any]) -> None:
    loads = {found[name]["figures"]["expert_load"] for name in EXACTLY}
    assert len(loads) == 1, "whatever rank has which token"


@pytest.mark.nightly
def test_a_resumed_run_of_divided_experts_has_the_very_same_curve(found: dict[str, Any]) -> None:
    result = found["resumed"]
    assert result["at"] == RESUME_STEPS // 2
    assert result["broken"] == result["straight"] and len(result["broken"]) == RESUME_STEPS
    assert result["same_weights"]
    other, fewer = result["refusals"]
    assert "is of other settings: expert_parallel_size was 2, is 4" in other
    assert "is of other settings: num_experts was 8, is 4" in fewer


def test_ranks_that_do_not_average_are_found_though_their_experts_have_gradients_of_others(
    found: dict[str, Any],
) -> None:
    assert found["alone"]["none"] is None
    assert found["alone"]["shards apart"].startswith("rank 1 trains alone: its gradient is not the average")
