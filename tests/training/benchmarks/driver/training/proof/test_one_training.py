"""Whatever keeps the ranks from making one training ends the run and names the rank; one start sabotages all of it."""

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from protocol import pulse
from protocol.outcome import MeasuredCase, MeasuredRound, Reference
from protocol.perflog import Event, parse_line
from run_benchmarks.results.judge import files_read
from run_benchmarks.results.rank_logs import read_rank_log
from tests.training.benchmarks.driver.launch.launching import ROOT, exit_record, run
from tests.training.benchmarks.driver.training.sabotage_workload import SABOTAGES, SETTINGS
from tests.training.benchmarks.driver.training.tiny import config_of
from training.benchmarks.driver.training.data.data_order import DataOrder
from training.benchmarks.driver.training.data.loader import TensorSet
from training.benchmarks.driver.training.data.micro_batches import MicroBatches
from training.benchmarks.driver.training.measuring.curve_records import CURVE_ENTRY
from training.benchmarks.driver.training.proof.one_training import OneTraining, checksum, combined
from training.benchmarks.driver.training.proof.replicas import Expectation, ReplicaState, first_departure
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule
from training.benchmarks.llama.pytorch.outcome import OUTCOME

WORKLOAD = "tests.training.benchmarks.driver.training.sabotage_workload"
CAUGHT = {
    "none": None,
    "no_averaging": "rank 0 trains alone: its gradient is not the average over the data-parallel ranks",
    "no_averaging_unprobed": "after step 4 rank 1 has other parameters than rank 0, first model.embed_tokens.weight",
    "no_averaging_of_shards": "rank 0 trains alone: its gradient is not the average over the data-parallel ranks",
    "bit": "after step 8 rank 1 has other parameters than rank 0, first model.layers.1.mlp.up_proj.weight",
    "bit_of_what_layers_share": "after step 8 rank 1 has other parameters than rank 0, first model.norm.weight",
    "rate_of_zero": "after step 4 rank 0 has updated with the learning rate 0, not 0.00471875",
    "half_rate_of_shards": "after step 4 rank 1 has updated with the learning rate 0.002359375, not 0.00471875",
    "bit_between_evaluations": "after step 6 rank 1 has other parameters than rank 0, first model.layers.1.mlp.up_proj",
    "loss": "after step 8 rank 1 has found a loss that is not finite in step 6, before the other ranks",
    "loss_that_is_logged": "after step 6 rank 1 has found a loss that is not finite in step 6, before the other ranks",
    "gradient": "after step 8 rank 1 has found a gradient that is not finite in step 6, before the other ranks",
    "gradient_of_shards": "after step 12 rank 1 has found a gradient that is not finite in step 6, before the other",
    "gradient_of_a_weight": "after step 8 rank 1 has found a gradient that is not finite in step 6, before the other",
    "gradient_of_a_weight_in_fp16": "after step 8 rank 1 has found a gradient that is not finite in step 8, before the",
    "evaluated_on_training": "after step 0 rank 0 has evaluated samples of the training set, as all ranks have",
    "evaluated_on_other_training": "after step 0 rank 0 has evaluated other samples than the evaluation set's, as all",
    "lost_update": "after step 6 rank 0 has skipped 1 update since the last check, as all ranks have",
    "no_updates": "after step 4 rank 0 has skipped 4 updates since the last check, as all ranks have",
    "no_updates_later": "after step 8 rank 0 has skipped 4 updates since the last check, as all ranks have",
    "lost_update_of_shards": "after step 8 rank 1 has skipped 1 update since the last check",
    "same_samples": "after step 4 rank 1 has trained the same samples as rank 0",
    "lost_samples": "after step 4 the ranks together have not trained each sample of their steps once",
    "same_dropout": "after step 0 rank 1 has a generator with the seed 44040192, not 44040193",
    "drawn": "after step 8 rank 1 has another state of its random generator than rank 0, which has the same samples",
    "wrong_products": "after step 0 rank 1 finds the loss",
}


def test_a_rank_that_waits_for_losses_says_so_and_the_update_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str | None] = []

    class Gathering:
        """A collective that ends when it is waited for."""

        def wait(self) -> None:
            said.append(pulse._described(threading.get_ident()))
            for part, value in zip(gathered, (2.5, 0.5), strict=True):
                part.fill_(value)

    gathered: list[torch.Tensor] = []

    def gather(every: list[torch.Tensor], own: torch.Tensor, *, async_op: bool) -> Gathering:
        assert async_op and own.tolist() == [0.5]
        gathered.extend(every)
        return Gathering()

    monkeypatch.setattr(torch.distributed, "all_gather", gather)
    proof = OneTraining.__new__(OneTraining)
    proof._places = [{"dp": 1}, {"dp": 0}]
    proof.share_loss(torch.tensor(0.5, requires_grad=True))
    assert not said
    assert proof.losses() == [0.5, 2.5], "by data-parallel rank"
    assert said == ["all_gather"] and pulse._described(threading.get_ident()) is None
    with pytest.raises(AssertionError, match="share_loss comes first"):
        proof.losses()


@pytest.fixture(scope="module")
def sabotaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with what the workload found."""
    folder = tmp_path_factory.mktemp("sabotage")
    argv = [sys.executable, "-m", WORKLOAD, str(folder)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    result = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def ended(sabotaged: Path) -> list[dict[str, str | None]]:
    """By rank, the message with which it ended each sabotaged run."""
    return [json.loads((sabotaged / f"ended{rank}.json").read_text()) for rank in range(2)]


@pytest.mark.parametrize("name", SABOTAGES)
def test_a_sabotage_ends_every_rank_and_names_the_one(name: str, ended: list[dict[str, str | None]]) -> None:
    first, second = (of_rank[name] for of_rank in ended)
    assert first == second
    expected = CAUGHT[name]
    assert first == expected if expected is None or first is None else first.startswith(expected)


@pytest.mark.nightly
def test_the_controller_learns_the_rank_and_the_sentence(tmp_path: Path) -> None:
    config, data, cache = tmp_path / "config.py", tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    cache.mkdir()
    tokens = np.arange(16 * 200, dtype=np.int32) % 40
    for name, shift in (("train.npy", 0), ("eval.npy", 1)):
        np.save(data / name, np.roll(tokens, shift))
    settings = config_of("llama").model_dump() | SETTINGS | {"data": "files"}
    config.write_text("".join(f"{key} = {value!r}\n" for key, value in settings.items()))
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    options = ["--nproc_per_node", "2", "--launcher", "processes", "--master_port", port]
    arguments = [WORKLOAD, "--config_file", str(config), "--vendor", "cpu", "--data_dir", str(data)]
    code, _ = run(tmp_path, options, arguments, OMP_NUM_THREADS="1", SABOTAGE="bit", CLUSTERDYNO_DATA_CACHE=str(cache))
    failure = exit_record(tmp_path).failures[0]
    assert (code, failure.rank) == (1, 1)
    assert str(CAUGHT["bit"]) in failure.message
    for rank in range(2):
        lines = (tmp_path / f"rank{rank}.out.log").read_text().splitlines()
        evaluations: list[Any] = [
            each.value for each in map(parse_line, lines) if each and each.event is Event.EVALUATE
        ]
        departed = [value["one_training"]["departed"] for value in evaluations]
        assert departed == [None, CAUGHT["bit"]]
    whole = hashlib.sha256((data / "train.npy").read_bytes()).hexdigest()
    size = (data / "train.npy").stat().st_size
    md5 = hashlib.md5((data / "train.npy").read_bytes()).hexdigest()
    expected = {"size": size, "sha256": whole}
    of_eval = {"size": size, "sha256": hashlib.sha256((data / "eval.npy").read_bytes()).hexdigest()}
    found = files_read(read_rank_log(tmp_path, 0))
    assert [(name, file.model_dump()) for name, file in found.items()] == [
        ("eval.npy", of_eval | {"md5": None, "published_md5": None}),
        ("train.npy", expected | {"md5": md5, "published_md5": "0" * 32}),
    ]  # fmt: skip
    other = f"{data}/train.npy: is not the published file: its md5 is {md5}, not {'0' * 32}"
    assert [other in (tmp_path / f"rank{rank}.out.log").read_text() for rank in range(2)] == [True, False]
    assert files_read(read_rank_log(tmp_path, 1)) == {}, "one rank tells it"
    (kept,) = cache.iterdir()
    assert kept.read_text().count(whole) == 1


def test_nodes_share_the_reading_of_a_shared_folder_and_must_have_the_same_files(sabotaged: Path) -> None:
    first, second = (json.loads((sabotaged / f"identity{rank}.json").read_text()) for rank in range(2))
    for place, (mine, theirs) in enumerate((("abc", "abc"), ("bc", "a"))):  # two folders, then one for both
        assert (first[place].pop("read"), second[place].pop("read")) == (list(mine), list(theirs))
        assert first[place] == second[place]
    names = {"a": b"a" * 3, "b": b"bb", "c": b"c" * 9}
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in names.items()}
    files = {name: {"size": len(names[name]), "sha256": hashes[name]} for name in names}
    files["a"] |= dict.fromkeys(("md5", "published_md5"), "47bce5c74f589f4867dbd57e9ca9f808")
    assert first[0]["files"] == files
    lines = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
    assert first[0]["sha256"] == hashlib.sha256(lines.encode()).hexdigest()
    for said in (first[2], second[2]):
        assert (
            ": expected the same files on all nodes: node 1 has another b than node 0: sha256 3b64db95cb55c763" in said
        )


def _compared(sabotaged: Path, name: str, reference: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Sentences on what departs, and remarks, of a real curve against those of a reference."""
    curves = json.loads((sabotaged / "curves.json").read_text())

    def rounds(names: Sequence[str]) -> Mapping[str, Reference]:
        found = []
        for number, each in enumerate(names, 1):
            seed = int(each.rpartition("seed ")[2]) if "seed" in each else 42
            case = MeasuredCase(name="x", config={"seed": seed}, nnodes=1, nproc=2)
            found.append(
                OUTCOME.references(case, [MeasuredRound(number=number, metrics={}, steps=curves[each], hosts={})])
            )
        entries = [entry[CURVE_ENTRY] for entry in found]
        together = [curve for entry in entries for curve in entry.details["curves"]]  # type: ignore[union-attr]
        return {CURVE_ENTRY: entries[0].model_copy(update={"details": {"curves": together}})}

    found = OUTCOME.compare(rounds([name]), rounds(reference), 10)
    return found.sentences, found.remarks


SEEDS = ("reference", "seed 43", "seed 44")
SAME = "same training as the reference: "


@pytest.mark.parametrize(
    ("name", "reference", "same"),
    [
        ("reference", SEEDS[:1], "the loss is within 0 %"),
        ("fsdp", SEEDS[:1], "the loss is within "),
        ("seed 45", SEEDS, ""),
    ],
)
def test_a_healthy_training_is_the_same_as_the_reference(
    name: str, reference: Sequence[str], same: str, sabotaged: Path
) -> None:
    sentences, (remark,) = _compared(sabotaged, name, reference)
    assert sentences == () and remark.startswith(SAME + same)


@pytest.mark.parametrize(
    ("name", "reference", "where"),
    [
        ("labels of rank 1", SEEDS[:1], "at step 21: loss, most on rank 1, is "),
        ("labels of all", SEEDS[:1], "at step 21: loss is "),
        ("labels of all, seed 45", SEEDS, "at step 21: loss is "),
        ("data of rank 1", SEEDS[:1], "at step 20: the data of the samples of rank 1 are others"),
        ("lower rate", SEEDS[:1], "at step 21: loss is "),
    ],
)
def test_shuffled_labels_depart_from_the_reference(
    name: str, reference: Sequence[str], where: str, sabotaged: Path
) -> None:
    (sentence,), remarks = _compared(sabotaged, name, reference)
    assert sentence.startswith(f"the training departs from the reference {where}")
    assert remarks == ()


def _four(**changes: object) -> tuple[list[ReplicaState], Expectation]:
    """Two data-parallel groups of two ranks each; the second kind of parameters is divided in both dimensions."""
    places = [{"dp": rank // 2, "tp": rank % 2} for rank in range(4)]
    states = [
        ReplicaState(
            step=8, updates=80, rate=0.5, seed=7 + place["dp"],
            random=place["dp"], order=place["dp"], balance=(1, -1)[place["dp"]],
            data=place["dp"], has_moved=True, loss=2.5,
            parameters=(11, 20 + place["tp"], 30 + 2 * place["dp"] + place["tp"]),
        )
        for place in places
    ]  # fmt: skip
    divided = [frozenset[str](), frozenset({"tp"}), frozenset({"dp", "tp"})]
    return states, Expectation(
        places=places, divided=divided, seeds=[7, 7, 8, 8], loss_tolerance=1e-5, rate=0.5, steps=8
    )


@pytest.mark.parametrize(
    ("rank", "change", "sentence"),
    [
        (3, {"step": 9}, "rank 3 is at step 9, rank 0 at step 8"),
        (1, {"updates": 79}, "rank 1 has counted 79 updates, rank 0 80"),
        (2, {"rate": 0.25}, "rank 2 has updated with the learning rate 0.25, not 0.5"),
        (2, {"rate": 0.5 * 1.04}, "rank 2 has updated with the learning rate 0.52, not 0.5"),
        (3, {"rate": 0.5 * (1 - 1e-5)}, "rank 3 has updated with the learning rate 0.499995, not 0.5"),
        (2, {"rate": 0.5 + 1e-8}, None),
        (2, {"seed": 7}, "rank 2 has a generator with the seed 7, not 8"),
        (1, {"random": 5}, "rank 1 has another state of its random generator than rank 0, which has the same samples"),
        (3, {"order": 5}, "rank 3 has trained other samples than rank 2, which has the same samples"),
        (1, {"data": 5}, "rank 1 has got other data of the same samples than rank 0, which has the same samples"),
        (2, {"parameters": (11, 20, 99)}, None),
        (0, {"parameters": (12, 20, 30)}, "rank 0 has other parameters than rank 1"),
        (3, {"parameters": (11, 20, 33)}, "rank 3 has other parameters than rank 1"),
        (2, {"has_moved": False}, "rank 2 has the parameters that it had 8 steps ago"),
        (1, {"loss": 2.4999}, "rank 1 finds the loss 2.4999 on a batch on which the others find 2.5"),
        (1, {"loss": float("nan")}, "rank 1 finds the loss nan on a batch on which the others find 2.5"),
        (1, {"loss": 2.50001}, None),
    ],
)
def test_only_ranks_that_hold_the_same_are_compared(rank: int, change: dict[str, object], sentence: str | None) -> None:
    states, expected = _four()
    assert first_departure(states, expected) is None
    states[rank] = replace(states[rank], **change)  # type: ignore[arg-type]
    found = first_departure(states, expected)
    assert (found and (found.rank, found.sentence)) == (sentence and (rank, sentence))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rate": 0.25}, "has updated with the learning rate 0.25, not 0.5"),
        ({"missed": 1}, "has skipped 1 update since the last check, as all ranks have"),
        ({"seed": 9}, "has a generator with the seed 9, not 7"),
        ({"balance": 1}, "the ranks together have not trained each sample of their steps once"),
        ({"has_moved": False}, "has the parameters that it had 8 steps ago"),
    ],
)
def test_a_rank_that_is_alone_departs_from_the_settings(change: dict[str, object], words: str) -> None:
    """There is nobody to compare it with."""
    states, expected = _four()
    alone = replace(expected, places=[{"dp": 0}], seeds=[7], divided=[frozenset()])
    sound = replace(states[0], balance=0, parameters=(11,))
    assert first_departure([sound], alone) is None
    found = first_departure([replace(sound, **change)], alone)  # type: ignore[arg-type]
    assert found is not None and found.rank == 0 and words in found.sentence, found


@pytest.mark.parametrize(
    ("scale", "is_excused"),
    [(None, False), (65536.0, False), (131072.0, False), (4096.0, False), (512.0, False), (256.0, True), (2.0, True)],
)
def test_parameters_may_stand_still_in_fp16_only_if_every_step_overflowed(
    scale: float | None, is_excused: bool
) -> None:
    """Each overflow halves the scale: eight steps since the last check, at 65536, leave 65536 / 2**8 = 256."""
    proof = OneTraining.__new__(OneTraining)
    proof._last_step, proof._last_scale = 4, None if scale is None else 65536.0
    precision: Any = SimpleNamespace(loss_scale=scale)
    assert proof._all_skipped(12, precision) is is_excused
    proof._last_step = None
    assert proof._all_skipped(12, precision) is False, "there was no check before"


def test_a_training_that_has_diverged_everywhere_is_one() -> None:
    states, expected = _four()
    assert first_departure([replace(state, loss=float("nan")) for state in states], expected) is None


def test_numbers_of_a_state_carry_all_of_it() -> None:
    for state in (*_four()[0], replace(_four()[0][0], order=2**64 - 1, balance=2**63, loss=float("inf"))):
        again = ReplicaState.of_numbers(torch.tensor(state.numbers(), dtype=torch.int64).tolist())
        assert again.numbers() == state.numbers() and again.loss == state.loss


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.bool])
def test_a_checksum_notices_every_bit_and_every_exchange(dtype: torch.dtype) -> None:
    tensor = (torch.arange(300) % 7).to(dtype).reshape(3, 100)
    before = int(checksum(tensor))
    assert int(checksum(tensor.clone())) == before
    assert int(checksum(tensor.t().contiguous())) != before
    width = 8 * tensor.element_size()
    integers = {8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[width]
    for place in (0, 299):
        for bit in range(1 if dtype is torch.bool else width):
            changed = tensor.clone()
            changed.view(integers).view(-1)[place] ^= torch.tensor(1, dtype=integers) << bit
            assert int(checksum(changed)) != before
    parts = [checksum(part) for part in tensor]
    cpu = torch.device("cpu")
    assert int(combined(parts, cpu)) != int(combined(reversed(parts), cpu))


def test_a_checksum_of_many_pieces_depends_on_the_place(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.arange(1000, dtype=torch.float32)
    whole = int(checksum(tensor))
    monkeypatch.setattr("training.benchmarks.driver.training.proof.one_training._CHUNK", 64)
    assert int(checksum(tensor)) == whole


def _order(dp_rank: int, dp_size: int) -> tuple[DataOrder, MicroBatches]:
    samples = TensorSet({"x": torch.arange(40)})
    schedule = TrainingSchedule.of(config_of("llama", train_batch_size=2), dp_size=dp_size, train_samples=40)
    sampler = MicroBatches(samples, schedule, micro_batch=2, dp_rank=dp_rank, dp_size=dp_size, seed=5)
    return DataOrder(sampler, dp_rank=dp_rank, dp_size=dp_size, global_batch_size=schedule.global_batch_size), sampler


def test_the_account_of_samples_is_even_over_ranks_and_epochs() -> None:
    orders = []
    for rank in range(3):
        order, sampler = _order(rank, 3)
        for epoch, first in ((0, 0), (1, 2)):
            sampler.start(epoch, first)
            for _ in sampler:
                order.step(1)
                order.balance()  # at any time
        orders.append(order)
    assert sum(order.balance() for order in orders) % 2**64 == 0
    assert len({order.digest() for order in orders}) == 3
    assert all(order.samples == 2 * (6 + 4) for order in orders)
    missing, sampler = _order(0, 3)
    sampler.start(0, 0)
    for number, indices in enumerate(sampler):
        if number == 1:
            sampler.handed_out[-1] = np.roll(indices, 1)
        missing.step(1)
    assert missing.digest() != orders[0].digest()
