"""What is found out about data and weights before a device is taken."""

import argparse
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.benchmarks.driver.training.tiny import benchmark_of, config_of, prepared
from training.benchmarks.driver.training.benchmark import PreparedTraining, TrainingBenchmark
from training.benchmarks.driver.training.data.data_error import DataError
from training.benchmarks.driver.training.measuring.report import identity
from training.benchmarks.driver.training.settings.schedule import TrainingSchedule
from training.benchmarks.driver.workload.usage import UnusableSettingsError


def _prepare(data_dir: Path | None = None, **settings: Any) -> PreparedTraining:
    return prepared("llama", config_of("llama", **settings), data_dir)


def _weights() -> dict[str, torch.Tensor]:
    with torch.device("meta"):
        names = {name: p.shape for name, p in benchmark_of("llama").build_model(config_of("llama")).named_parameters()}
    return {name: torch.full(shape, 0.5) for name, shape in names.items()}


def test_synthetic_data_needs_nothing_and_the_model_has_no_storage() -> None:
    found = _prepare()
    assert len(found.data.train) == 128 and found.weights is None
    assert all(parameter.is_meta for parameter in found.model.parameters())


def test_a_checkpoint_is_of_the_benchmark_whatever_class_sharding_makes_of_its_model() -> None:
    found, config = _prepare(), config_of("llama")
    found.model.__class__ = type("FSDPLlama", (type(found.model),), {})
    schedule = TrainingSchedule.of(config, dp_size=1, train_samples=len(found.data.train))
    assert identity("llama", config, schedule, 1, found)["model"] == "llama"


@pytest.mark.parametrize("made", [{}, {"open_files": lambda self, config, data_dir: None}])
def test_a_benchmark_that_makes_no_data_is_refused_where_it_is_written(made: dict[str, Any]) -> None:
    missing = "synthetic_data" if made else "synthetic_data and open_files"
    with pytest.raises(TypeError, match=f"^Forgetful makes no data: it has neither `data` nor {missing}$"):
        type("Forgetful", (TrainingBenchmark,), made)


def test_a_data_folder_and_synthetic_data_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(UnusableSettingsError, match="has no effect with data = 'synthetic'"):
        _prepare(tmp_path)


def test_a_compiler_that_torch_does_not_have_is_named_with_those_it_has() -> None:
    with pytest.raises(
        UnusableSettingsError, match=r"compile_backend = 'inductorr': .*allowed: None, 'auto', .*'inductor'"
    ):
        _prepare(compile_backend="inductorr")


def test_files_need_a_folder_that_is_there(tmp_path: Path) -> None:
    with pytest.raises(UnusableSettingsError, match="needs a data folder"):
        _prepare(data="files")
    with pytest.raises(DataError, match="none: no such folder"):
        _prepare(tmp_path / "none", data="files")


@pytest.mark.parametrize("nesting", [None, "module", "model", "state_dict"])
def test_weights_are_found_in_the_usual_nestings(tmp_path: Path, nesting: str | None) -> None:
    path = tmp_path / "weights.pt"
    state: dict[str, Any] = _weights() | {"not.a.parameter": torch.zeros(3)}
    torch.save({nesting: state, "iteration": 5} if nesting else state, path)
    found = _prepare(init_checkpoint=str(path))
    assert found.weights is not None
    assert found.weights.keys() == _weights().keys()
    assert all(tensor.eq(0.5).all() for tensor in found.weights.values())


@pytest.mark.parametrize("core", [None, b"numpy._core.multiarray", b"numpy.core.multiarray"])
def test_weights_are_found_beside_what_deepspeed_and_megatron_save(tmp_path: Path, core: bytes | None) -> None:
    """In an archive, and, where `core` is given, as torch before 1.6 wrote it, with numpy 2 or 1."""
    path = tmp_path / "mp_rank_00_model_states.pt"
    others = {
        "args": argparse.Namespace(seed=1),
        "np_rng_state": np.random.RandomState(1).get_state(),
        "random_rng_state": random.getstate(),
        "torch_rng_state": torch.get_rng_state(),
        "loss": np.float64(0.5),
        "csr_tensor_module_names": {"word_embeddings"},
    }
    torch.save({"module": _weights()} | others, path, _use_new_zipfile_serialization=core is None)
    if core is not None:
        saved = path.read_bytes()
        assert b"numpy._core.multiarray" in saved
        path.write_bytes(saved.replace(b"numpy._core.multiarray", core))
    found = _prepare(init_checkpoint=str(path)).weights
    assert found is not None and found.keys() == _weights().keys()
    assert all(tensor.eq(0.5).all() for tensor in found.values())


class _Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"module": _weights(), "more": _Harmful(tmp_path / "executed")}, path)
    with pytest.raises(DataError, match=r"weights\.pt: no checkpoint of llama .*: Unsupported .{,99}$"):
        _prepare(init_checkpoint=str(path))
    assert not (tmp_path / "executed").exists()


def test_weights_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    with pytest.raises(DataError, match=r"weights\.pt: no such file \(init_checkpoint\)"):
        _prepare(init_checkpoint=str(path))
    path.write_bytes(b"no checkpoint")
    with pytest.raises(DataError, match=r"weights\.pt: no checkpoint of llama"):
        _prepare(init_checkpoint=str(path))
    torch.save([1, 2], path)
    with pytest.raises(DataError, match=r"weights\.pt: no checkpoint of llama"):
        _prepare(init_checkpoint=str(path))
    weights = _weights()
    weights["model.norm.weight"] = torch.zeros(31)
    for name in list(weights)[1:6]:
        del weights[name]
    torch.save(weights, path)
    with pytest.raises(DataError, match=r"q_proj\.weight is missing; .*; and 3 more|is missing.*and 3 more"):
        _prepare(init_checkpoint=str(path))
    torch.save(_weights() | {"model.norm.weight": torch.zeros(31)}, path)
    with pytest.raises(DataError, match=r"model\.norm\.weight has shape \[31\], the model's has \[32\]"):
        _prepare(init_checkpoint=str(path))
