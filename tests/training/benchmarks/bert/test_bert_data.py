"""BERT's HDF5 files: what is read from good ones, and that broken ones are named."""

from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.bert.samples import wikipedia_lengths
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.loader import loader
from training.benchmarks.driver.training.settings.settings import TrainingConfig

SEQ, MASKS = 16, 3
TRAIN, EVAL = "2048_shards_uncompressed/part_{}.hdf5", "eval_set_uncompressed/part_eval_10k.hdf5"


def _arrays(count: int, seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    positions = np.sort(generator.permuted(np.tile(np.arange(1, SEQ), (count, 1)), axis=1)[:, :MASKS], axis=1)
    positions[0, 1:] = 0  # one mask only in the first sample
    return {
        "input_ids": generator.integers(4, 64, (count, SEQ), dtype=np.int32),
        "input_mask": np.ones((count, SEQ), dtype=np.int8),
        "segment_ids": generator.integers(0, 2, (count, SEQ), dtype=np.int8),
        "masked_lm_positions": positions.astype(np.int32),
        "masked_lm_ids": generator.integers(4, 64, (count, MASKS), dtype=np.int32),
        "next_sentence_labels": generator.integers(0, 2, count, dtype=np.int8),
    }


def _write(path: Path, arrays: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    for number, count in enumerate((5, 3)):
        _write(tmp_path / TRAIN.format(number), _arrays(count, number))
    _write(tmp_path / EVAL, _arrays(4, 9))
    return tmp_path


def _config(**settings: Any) -> TrainingConfig:
    return config_of("bert", data="files", **settings)


def test_samples_are_read_over_the_shards(data_dir: Path) -> None:
    sets = benchmark_of("bert").open_files(_config(), data_dir)
    assert (len(sets.train), len(sets.evaluation)) == (8, 4)
    batch = sets.train[[6, 0, 4]]
    for key in ("input_ids", "segment_ids", "masked_lm_positions", "next_sentence_labels"):
        expected = [_arrays(3, 1)[key][1], _arrays(5, 0)[key][0], _arrays(5, 0)[key][4]]
        assert batch[key].tolist() == np.stack(expected).tolist()
        assert batch[key].dtype == torch.int64
    assert batch["masked_lm_ids"][1].tolist() == [_arrays(5, 0)["masked_lm_ids"][0, 0], 0, 0], (
        "a position of 0 ends them"
    )
    model = benchmark_of("bert").build_model(_config())
    assert torch.isfinite(model(batch)["loss"])


def test_missing_files_are_named(data_dir: Path) -> None:
    (data_dir / EVAL).unlink()
    with pytest.raises(DataError, match=r"part_eval_10k\.hdf5: no such file"):
        benchmark_of("bert").open_files(_config(), data_dir)
    for shard in data_dir.glob("2048*/part*"):
        shard.unlink()
    with pytest.raises(DataError, match=r"2048_shards_uncompressed/part\*\.hdf5: no such file.*train_files"):
        benchmark_of("bert").open_files(_config(), data_dir)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"masked_lm_ids": None}, r"part_1\.hdf5: has no 'masked_lm_ids'; found input_ids"),
        ({"input_ids": np.zeros((3, 8), dtype=np.int32)}, r"\[3, 8\]; expected \[3, 16\] \(max_seq_length = 16\)"),
        ({"masked_lm_positions": np.zeros((3, 4))}, r"expected \[3, 3\] \(max_predictions_per_seq = 3\)"),
        ({"input_mask": np.ones((2, SEQ))}, r"\[2, 16\]; expected \[3, 16\]"),
    ],
)
def test_a_file_of_another_shape_is_named_when_it_is_opened(
    data_dir: Path, change: dict[str, Any], message: str
) -> None:
    arrays = {key: value for key, value in (_arrays(3, 1) | change).items() if value is not None}
    _write(data_dir / TRAIN.format(1), arrays)
    with pytest.raises(DataError, match=message):
        benchmark_of("bert").open_files(_config(), data_dir)


def test_a_file_that_is_no_hdf5_or_empty_is_named(data_dir: Path) -> None:
    (data_dir / TRAIN.format(1)).write_bytes(b"\x89HDF\r\n\x1a\n" + b"\0" * 30)
    with pytest.raises(DataError, match=r"part_1\.hdf5: broken HDF5 file"):
        benchmark_of("bert").open_files(_config(), data_dir)
    _write(data_dir / TRAIN.format(1), {key: value[:0] for key, value in _arrays(3, 1).items()})
    with pytest.raises(DataError, match=r"part_1\.hdf5: has no samples"):
        benchmark_of("bert").open_files(_config(), data_dir)


@pytest.mark.parametrize("key", ["masked_lm_positions", "masked_lm_ids"])
def test_a_file_without_any_masked_token_is_named(data_dir: Path, key: str) -> None:
    """An evaluation would divide by their number."""
    arrays = _arrays(4, 9)
    arrays[key][:] = 0
    _write(data_dir / EVAL, arrays)
    with pytest.raises(DataError, match=r"part_eval_10k\.hdf5: .* mask no token"):
        benchmark_of("bert").open_files(_config(), data_dir)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("input_ids", 64, r"'input_ids' has 64 in row 2; expected 0 to 63 \(vocab_size\)"),
        ("masked_lm_ids", -1, "'masked_lm_ids' has -1 in row 2"),
        ("segment_ids", 2, "'segment_ids' has 2 in row 2; expected 0 to 1"),
        ("masked_lm_positions", 16, r"has 16 in row 2; expected 0 to 15 \(max_seq_length\)"),
        ("next_sentence_labels", 3, "'next_sentence_labels' has 3 in row 2"),
    ],
)
@pytest.mark.parametrize("shard", [0, 1])
def test_a_value_out_of_range_is_named_before_it_reaches_the_device(
    data_dir: Path, shard: int, key: str, value: int, message: str
) -> None:
    """In the first file when the set is opened, in any other one when it is read."""
    arrays = _arrays((5, 3)[shard], shard)
    arrays[key][2, ...] = value
    _write(data_dir / TRAIN.format(shard), arrays)
    with pytest.raises(DataError, match=rf"part_{shard}\.hdf5: .*{message}"):
        _ = benchmark_of("bert").open_files(_config(), data_dir).train[[7]]


@pytest.mark.parametrize(
    ("key", "content", "message"),
    [
        ("input_ids", np.full((5, SEQ), 4.5), r"'input_ids' has 4\.5 in row 0; expected integers"),
        ("input_ids", np.full((5, SEQ), b"four"), r"'input_ids' holds \|S4; expected integers"),
        ("next_sentence_labels", np.zeros((5, 1), dtype=np.int8), r"has the shape \[5, 1\]; expected one dimension"),
        ("next_sentence_labels", np.int8(1), "is a single value; expected an array"),
    ],
)
def test_a_file_of_another_kind_is_named(data_dir: Path, key: str, content: Any, message: str) -> None:
    _write(data_dir / TRAIN.format(0), _arrays(5, 0) | {key: content})
    with pytest.raises(DataError, match=message):
        benchmark_of("bert").open_files(_config(), data_dir)


def test_whole_numbers_in_floating_point_and_files_of_another_length_are_read(data_dir: Path) -> None:
    arrays = _arrays(5, 0)
    _write(data_dir / TRAIN.format(0), arrays | {"input_ids": arrays["input_ids"].astype(np.float32)})
    batch = benchmark_of("bert").open_files(_config(), data_dir).train[[4]]
    assert batch["input_ids"].tolist() == arrays["input_ids"][[4]].tolist()
    for path in (*data_dir.glob("*/part_?.hdf5"), data_dir / EVAL):
        longer = {key: np.repeat(each, 2, axis=1) if each.ndim == 2 else each for key, each in _arrays(4, 1).items()}
        path.unlink()
        _write(path, longer)
    settings = {"max_seq_length": 2 * SEQ, "max_position_embeddings": 2 * SEQ, "max_predictions_per_seq": 2 * MASKS}
    assert benchmark_of("bert").open_files(_config(**settings), data_dir).train[[5]]["input_ids"].shape == (1, 2 * SEQ)


def test_a_truncated_file_is_named(data_dir: Path) -> None:
    path = data_dir / TRAIN.format(1)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(DataError, match=r"part_1\.hdf5: broken HDF5 file: .*truncated"):
        benchmark_of("bert").open_files(_config(), data_dir)


def test_a_worker_process_names_the_file_and_nothing_else(data_dir: Path) -> None:
    arrays = _arrays(3, 1)
    arrays["input_ids"][2, 2] = 64
    _write(data_dir / TRAIN.format(1), arrays)
    train = benchmark_of("bert").open_files(_config(), data_dir).train
    with pytest.raises(DataError) as error:
        list(loader(train, [[0], [7]], workers=1, device=torch.device("cpu")))
    expected = "'input_ids' has 64 in row 2; expected 0 to 63 (vocab_size)"
    assert str(error.value) == f"{data_dir / TRAIN.format(1)}: {expected}"


def test_synthetic_lengths_are_those_of_the_published_histogram() -> None:
    generator = np.random.default_rng(3)
    lengths = wikipedia_lengths(generator, 200_000, 512)
    assert (lengths == 512).mean() == pytest.approx(0.2343, abs=0.004)
    assert lengths.mean() == pytest.approx(255.8, abs=1.5)
    assert (lengths.astype(float) ** 2).mean() == pytest.approx(98_826, rel=0.01)
    assert lengths.min() == 5 and np.median(lengths[lengths < 512]) == pytest.approx(135, abs=2)
    short = wikipedia_lengths(generator, 200_000, 64)
    assert short.max() == 64 and short.min() == 5 and short.mean() == pytest.approx(255.8 / 8, abs=0.5)


def test_samples_of_published_lengths_are_padded_pairs() -> None:
    config = config_of("bert", synthetic_lengths="wikipedia", max_seq_length=64, max_position_embeddings=64)
    batch = benchmark_of("bert").synthetic_data(config).train[list(range(64))]
    lengths = batch["input_mask"].sum(1)
    assert len(set(lengths.tolist())) > 5
    for row, length in enumerate(lengths.tolist()):
        tokens, mask = batch["input_ids"][row], batch["input_mask"][row]
        assert mask[:length].all() and not mask[length:].any() and not tokens[length:].any()
        assert tokens[0] == 1 and tokens[length - 1] == 2, "[CLS] and [SEP]"
        labels, positions = batch["masked_lm_ids"][row], batch["masked_lm_positions"][row]
        predicted = int((labels != 0).sum())
        assert predicted == (3 if length == 64 else min(max(round(0.15 * length), 1), 3))
        assert (tokens[positions[:predicted]] == 3).all(), "[MASK]"
        assert not labels[predicted:].any() and not positions[predicted:].any()
