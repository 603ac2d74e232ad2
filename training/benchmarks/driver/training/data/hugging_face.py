"""Reads and writes weights in Hugging Face's form: safetensors files, in shards with an index beside them."""

import importlib
import json
import shutil
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.distributed as dist
from pydantic import BaseModel, JsonValue, ValidationError
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from common.reading import read_bounded
from protocol import safe_json
from training.benchmarks.driver.workload.usage import UnusableSettingsError

SUFFIX, INDEX = ".safetensors", "model.safetensors.index.json"
SINGLE, CONFIG = "model.safetensors", "config.json"
INDEX_BYTES = 64 << 20  # an index has some hundred bytes for a tensor
# Bytes of a shard at most, as transformers writes them, unless one tensor alone is larger.
SHARD_BYTES = 5_000_000_000

Parts = Mapping[str, tuple[str, ...]]
"""The names in the files of a parameter that has another name there, or is several tensors of as many rows each."""
_NO_PARTS: Parts = MappingProxyType({})


class BrokenWeightsError(Exception):
    """A file of weights is missing or broken; `path` and the message name it."""

    def __init__(self, path: Path, problem: str) -> None:
        super().__init__(problem)
        self.path = path


class Joined(Mapping[str, Tensor]):
    """The tensors of files by the names and in the `shapes` of a model's parameters. One that is several tensors in the
    files is put together each time that it is asked for: the files are only mapped.
    """

    def __init__(self, found: Mapping[str, Tensor], parts: Parts, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._found, self._parts, self._shapes = found, parts, shapes

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._parts:
            return self._found[name]
        return torch.cat([self._found[part] for part in self._parts[name]]).view(self._shapes[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._shapes)

    def __len__(self) -> int:
        return len(self._shapes)

    def file_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes that the tensors have to have in the files, by their names there."""
        wanted: dict[str, tuple[int, ...]] = {}
        for name, shape in self._shapes.items():
            parts = self._parts.get(name, (name,))
            of_part = (prod(shape[:-1]) // len(parts), shape[-1]) if name in self._parts else shape
            wanted |= dict.fromkeys(parts, of_part)
        return wanted


class _Index(BaseModel, extra="ignore"):
    weight_map: dict[str, str]


def is_hugging_face(path: Path) -> bool:
    """Whether `path` is a folder of weights, an index of shards, or a safetensors file."""
    return path.is_dir() or path.name.endswith((SUFFIX, f"{SUFFIX}.index.json"))


def files_of(path: Path) -> list[Path]:
    """The files that hold the weights of `path`: of a folder its shards, or its one file.

    Raises:
        BrokenWeightsError: there is none, or the index is broken or names a file that is not there.
    """
    if path.is_dir():
        found = [path / name for name in (INDEX, SINGLE) if (path / name).is_file()]
        if not found:
            raise BrokenWeightsError(path, f"has neither {INDEX} nor {SINGLE}")
        path = found[0]
    if not path.is_file():
        raise BrokenWeightsError(path, "no such file")
    if path.name.endswith(SUFFIX):
        return [path]
    shards = sorted({path.with_name(name) for name in _index(path).values()})
    for shard in shards:
        if not shard.is_file():
            raise BrokenWeightsError(shard, f"no such file; {path.name} names it")
    return shards


def read(path: Path) -> dict[str, Tensor]:
    """Every tensor by its name, of the shape that the file says, on the CPU; files are mapped, and read where needed.
    Of shards the tensors that the index names, each from the file in which the index has it.

    Raises:
        BrokenWeightsError: a file is missing or broken, or lacks a tensor that the index has in it.
    """
    safetensors = _library(path)
    index = path / INDEX if path.is_dir() else path
    places = _index(index) if index.is_file() and not index.name.endswith(SUFFIX) else None
    found: dict[str, Tensor] = {}
    for file in files_of(path):
        try:
            with safetensors.safe_open(file, framework="pt", device="cpu") as opened:
                there = frozenset(opened.keys())
                names = there if places is None else {name for name, place in places.items() if place == file.name}
                if names - there:
                    lacking = min(names - there)
                    raise BrokenWeightsError(file, f"lacks {lacking}, which {index.name} has in it")
                found |= {name: opened.get_tensor(name) for name in names}
        except (safetensors.SafetensorError, OSError) as error:
            raise BrokenWeightsError(file, f"broken safetensors file: {error}") from error
    return found


def model_facts(path: Path) -> dict[str, JsonValue]:
    """The facts of config.json beside the weights; empty where there is none.

    Raises:
        BrokenWeightsError: it is no JSON object.
    """
    file = (path if path.is_dir() else path.parent) / CONFIG
    if not file.is_file():
        return {}
    try:
        found = safe_json.read(file)
    except (OSError, safe_json.UnsafeJsonError) as error:
        raise BrokenWeightsError(file, f"no JSON: {error}") from error
    if not isinstance(found, dict):
        raise BrokenWeightsError(file, "no JSON object")
    rope = found.get("rope_parameters")  # transformers 5 keeps there what was beside it before
    if isinstance(rope, dict):
        plain = rope.get("rope_type", "default") == "default"
        found |= {"rope_theta": rope.get("rope_theta"), "rope_scaling": None if plain else rope}
    return found


def refuse_folder(folder: Path) -> None:
    """Check before a run that weights can be written to `folder`.

    Raises:
        UnusableSettingsError: it is there already, or its parent is not.
    """
    _library(folder)
    if folder.exists():
        raise UnusableSettingsError(f"save_weights: {folder}: already exists; choose a folder that does not")
    if not folder.parent.is_dir():
        raise UnusableSettingsError(f"save_weights: {folder.parent}: no such folder")


def write(
    folder: Path,
    module: nn.Module,
    facts: Mapping[str, JsonValue],
    parts: Parts = _NO_PARTS,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """Write the parameters, whole, in float32, by their names in `parts`, `facts` as config.json; on all ranks.

    Rank 0 writes shards of at most `shard_bytes`, one in memory at a time. The complete folder gets its name.
    """
    partial = folder.with_name(f"{folder.name}.partial")
    parameters = dict(module.named_parameters())
    shards = list(_shards(parameters, shard_bytes))
    count = len(shards)
    names = [SINGLE] if count == 1 else [f"model-{n:05d}-of-{count:05d}{SUFFIX}" for n in range(1, count + 1)]
    places: dict[str, str] = {}
    is_first = dist.get_rank() == 0
    if is_first:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
    for file_name, shard in zip(names, shards, strict=True):
        tensors: dict[str, Tensor] = {}
        for name in shard:
            whole = _whole(parameters[name])
            if is_first:
                whole = whole.cpu()
                tensors |= _parted(whole, parts[name]) if name in parts else {name: whole.contiguous()}
        if is_first:
            places |= dict.fromkeys(tensors, file_name)
            importlib.import_module("safetensors.torch").save_file(tensors, partial / file_name, {"format": "pt"})
    if is_first:
        if len(shards) > 1:
            size = sum(parameter.numel() * parameter.element_size() for parameter in parameters.values())
            _write_json(partial / INDEX, {"metadata": {"total_size": size}, "weight_map": places})
        if facts:
            _write_json(partial / CONFIG, facts)
        partial.rename(folder)
    dist.barrier()


def _shards(parameters: Mapping[str, Tensor], shard_bytes: int) -> Iterator[list[str]]:
    """Names of the parameters of each shard, in the order of the model."""
    names: list[str] = []
    size = 0
    for name, parameter in parameters.items():
        own = parameter.numel() * parameter.element_size()
        if names and size + own > shard_bytes:
            yield names
            names, size = [], 0
        names.append(name)
        size += own
    yield names


def _parted(whole: Tensor, names: tuple[str, ...]) -> dict[str, Tensor]:
    """Equally many rows of it by each name; safetensors refuses tensors that share their memory."""
    rows = whole.reshape(-1, whole.shape[-1]).chunk(len(names))
    return {name: each.clone() for name, each in zip(names, rows, strict=True)}


def _whole(parameter: Tensor) -> Tensor:
    whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
    return whole.detach()


def _index(path: Path) -> dict[str, str]:
    try:
        found = _Index.model_validate_json(read_bounded(path, INDEX_BYTES)).weight_map
    except (OSError, ValidationError) as error:
        raise BrokenWeightsError(path, f"no index of safetensors files: {str(error).splitlines()[0]}") from error
    outside = [name for name in found.values() if Path(name).name != name]
    if outside or not found:
        raise BrokenWeightsError(path, f"names {outside[0]!r}, no file beside it" if outside else "names no tensor")
    return found


def _library(path: Path) -> Any:
    try:
        return importlib.import_module("safetensors")
    except ImportError as error:
        raise UnusableSettingsError(f"{path}: weights in safetensors need the Python package safetensors") from error


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
