"""GLM's sparse HDF5 files: what is read from good ones, and that broken ones are named."""

from pathlib import Path
from typing import Any

import h5py  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.data.hdf5 import dense
from training.benchmarks.driver.training.settings.settings import TrainingConfig

SEQ = 16
FOLDER = "ReCoRD/glm_train_eval_hdf5_sparse"
COUNTS = [2, 5, 3]  # choices of each question
ANSWERS = [[1], [0, 4], [2]]
OF_EVALUATION = ("answer_start_end", "answer_idx")


def _arrays() -> dict[str, Any]:
    generator = np.random.default_rng(0)
    choices = sum(COUNTS)
    ends, answer_ends = np.cumsum(COUNTS), np.cumsum([len(each) for each in ANSWERS])
    lengths = generator.integers(1, 4, choices)
    logit_mask = np.zeros((choices, SEQ), dtype=np.int64)
    for row, length in enumerate(lengths):
        logit_mask[row, 10 : 10 + length] = 1
    return {
        "text": generator.integers(0, 64, (choices, SEQ)),
        "target": generator.integers(0, 64, (choices, SEQ)),
        "logit_mask": logit_mask,
        "position": generator.integers(0, 17, (2 * choices, SEQ)),
        "mask": generator.integers(5, 10, (1, choices)),
        "choice_start_end": np.stack([ends - COUNTS, ends], axis=1),
        "answer_start_end": np.stack([answer_ends - [len(each) for each in ANSWERS], answer_ends], axis=1),
        "answer_idx": np.array([[number for each in ANSWERS for number in each]]),
    }


def _write(path: Path, arrays: dict[str, Any], dense: tuple[str, ...] = (), left_out: tuple[str, ...] = ()) -> None:
    """As h5sparse writes compressed sparse rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            if key in left_out:
                continue
            if key in dense:
                file.create_dataset(key, data=array)
                continue
            group = file.create_group(key)
            group.attrs["h5sparse_format"] = "csr"
            group.attrs["h5sparse_shape"] = array.shape
            rows, columns = np.nonzero(array)
            group.create_dataset("data", data=array[rows, columns])
            group.create_dataset("indices", data=columns.astype(np.int32))
            counts = np.bincount(rows, minlength=len(array))
            group.create_dataset("indptr", data=np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    _write(tmp_path / FOLDER / "train_hdf5" / "part_sparse.hdf5", _arrays(), left_out=OF_EVALUATION)
    _write(tmp_path / FOLDER / "eval_hdf5" / "part_sparse.hdf5", _arrays(), dense=("text", "choice_start_end"))
    return tmp_path


def _config(**settings: Any) -> TrainingConfig:
    return config_of("glm", data="files", **settings)


def test_training_takes_a_fixed_number_of_choices_the_right_one_first(data_dir: Path) -> None:
    arrays = _arrays()
    sets = benchmark_of("glm").open_files(_config(), data_dir)
    assert len(sets.train) == len(sets.evaluation) == 3
    batch = sets.train[[0, 1]]
    assert batch["text"].shape == (2, 3, SEQ)
    assert batch["text"][0].tolist() == arrays["text"][[0, 1, 0]].tolist(), "two choices, filled up with the first"
    assert batch["text"][1].tolist() == arrays["text"][2:5].tolist(), "three of five"
    assert batch["choice_mask"].tolist() == [[True, True, False], [True, True, True]]
    assert batch["is_right"].tolist() == [[True, False, False], [True, False, False]]
    assert batch["position"][1, 2].tolist() == arrays["position"][[8, 9]].tolist()
    assert batch["context_length"][1].tolist() == arrays["mask"][0, 2:5].tolist()
    model = benchmark_of("glm").build_model(_config())
    assert torch.isfinite(model(batch)["loss"])


def test_evaluation_takes_all_choices_and_every_right_one(data_dir: Path) -> None:
    sets = benchmark_of("glm").open_files(_config(), data_dir)
    batch = sets.evaluation[[0, 1, 2]]
    assert batch["choice_mask"].sum(1).tolist() == COUNTS
    found = [torch.nonzero(row).flatten().tolist() for row in batch["is_right"]]
    assert found == ANSWERS


def test_the_answer_is_where_the_logit_mask_is(data_dir: Path) -> None:
    arrays = _arrays()
    batch = benchmark_of("glm").open_files(_config(), data_dir).evaluation[[2]]
    for choice, row in enumerate(range(7, 10)):
        places = np.nonzero(arrays["logit_mask"][row])[0]
        mask = batch["answer_mask"][0, choice]
        assert batch["answer_positions"][0, choice][mask].tolist() == places.tolist()
        assert batch["answer_tokens"][0, choice][mask].tolist() == arrays["target"][row, places].tolist()


def test_missing_files_are_named(data_dir: Path) -> None:
    (data_dir / FOLDER / "eval_hdf5" / "part_sparse.hdf5").unlink()
    with pytest.raises(DataError, match=r"eval_hdf5/\*_sparse\.hdf5: no such file.*eval_files"):
        benchmark_of("glm").open_files(_config(), data_dir)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mask": None}, "has no 'mask'"),
        ({"target": np.ones((3, SEQ), dtype=np.int64)}, r"'target' has the shape \[3, 16\]; expected \[10, 16\]"),
        ({"position": np.ones((10, SEQ), dtype=np.int64)}, r"expected \[20, 16\]"),
    ],
)
def test_a_file_of_another_shape_is_named_when_it_is_opened(
    data_dir: Path, change: dict[str, Any], message: str
) -> None:
    arrays = {key: value for key, value in (_arrays() | change).items() if value is not None}
    _write(data_dir / FOLDER / "train_hdf5" / "part_sparse.hdf5", arrays)
    with pytest.raises(DataError, match=message):
        benchmark_of("glm").open_files(_config(), data_dir)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("text", 64, r"'text' has 64 in row 9; expected 0 to 63 \(vocab_size\)"),
        ("position", 17, r"'position' has 17 in row 19; expected 0 to 16 \(max_position_embeddings\)"),
        ("mask", 17, r"'mask' has 17 in row 9; expected 0 to 16 \(max_seq_length\)"),
        ("choice_start_end", 11, "'choice_start_end' has 11 in row 2; expected 0 to 10"),
        ("answer_start_end", 3, "'answer_start_end' has an empty range in row 2"),
        ("answer_idx", 3, "'answer_idx' of question 2 has 3; expected 0 to 2"),
        ("answer_idx", -1, "'answer_idx' of question 2 has -1; expected 0 to 2"),
    ],
)
def test_values_out_of_range_are_named_when_they_are_read(data_dir: Path, key: str, value: int, message: str) -> None:
    arrays = _arrays()
    arrays[key][-1, -1] = value
    kind = "eval" if key in OF_EVALUATION else "train"
    _write(data_dir / FOLDER / f"{kind}_hdf5" / "part_sparse.hdf5", arrays)
    with pytest.raises(DataError, match=message):
        benchmark_of("glm").open_files(_config(), data_dir)


@pytest.mark.parametrize("key", OF_EVALUATION)
def test_an_evaluation_file_needs_its_answers(data_dir: Path, key: str) -> None:
    _write(data_dir / FOLDER / "eval_hdf5" / "part_sparse.hdf5", _arrays(), left_out=(key,))
    with pytest.raises(DataError, match=f"has no '{key}'"):
        benchmark_of("glm").open_files(_config(), data_dir)


def test_a_choice_without_an_answer_is_named(data_dir: Path) -> None:
    arrays = _arrays()
    arrays["logit_mask"][4] = 0
    _write(data_dir / FOLDER / "eval_hdf5" / "part_sparse.hdf5", arrays)
    with pytest.raises(DataError, match=r"eval_hdf5/part_sparse\.hdf5: 'logit_mask' marks no token in row 4"):
        benchmark_of("glm").open_files(_config(), data_dir)


def test_sparse_rows_are_kept_in_the_smallest_type_that_holds_them(data_dir: Path) -> None:
    path = data_dir / FOLDER / "train_hdf5" / "part_sparse.hdf5"
    with h5py.File(path, "r") as file:
        assert file["text"]["data"].dtype == np.int64
        assert dense(path, file, "text").dtype == np.int8
        np.testing.assert_array_equal(dense(path, file, "text"), _arrays()["text"])
    with h5py.File(path, "r+") as file:
        file["text"]["data"][0] = 30_000
        assert dense(path, file, "text").dtype == np.int16
        assert dense(path, file, "text").max() == 30_000


def test_broken_sparse_groups_are_named(data_dir: Path) -> None:
    path = data_dir / FOLDER / "train_hdf5" / "part_sparse.hdf5"
    with h5py.File(path, "r+") as file:
        file["text"].attrs["h5sparse_format"] = "csc"
    with pytest.raises(DataError, match="'text' is stored as 'csc'; expected 'csr'"):
        benchmark_of("glm").open_files(_config(), data_dir)
    with h5py.File(path, "r+") as file:
        file["text"].attrs["h5sparse_format"] = "csr"
        del file["text"]["indptr"]
        file["text"]["indptr"] = np.zeros(3)
    with pytest.raises(DataError, match="'text' has parts that do not fit its shape"):
        benchmark_of("glm").open_files(_config(), data_dir)
    with h5py.File(path, "r+") as file:
        del file["text"].attrs["h5sparse_shape"]
    with pytest.raises(DataError, match="'text' is a group without h5sparse_shape"):
        benchmark_of("glm").open_files(_config(), data_dir)
