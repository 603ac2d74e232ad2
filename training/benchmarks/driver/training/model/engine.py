"""Puts Transformer Engine's linear layers and norms in the place of torch's in the blocks of a model."""

import functools
import importlib
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from training.benchmarks.driver.training.model import fp8
from training.benchmarks.driver.training.model.model import BenchmarkModel
from training.benchmarks.driver.workload.usage import UnusableSettingsError

LINEAR, NORM = "linear", "norm"
KINDS = (LINEAR, NORM)
MULTIPLE = 16
"""Of both sizes of a matrix that is given to Transformer Engine, since FP8 needs it: a router to fewer experts stays
torch's.
"""
Replaced = Mapping[str, tuple[int, int]]
"""By kind of layer how many of the blocks are the library's, of how many."""
_LIBRARY = "transformer_engine"
_TORCHS: Mapping[str, tuple[type[nn.Module], ...]] = {LINEAR: (nn.Linear,), NORM: (nn.RMSNorm, nn.LayerNorm)}


def convert(model: BenchmarkModel, kinds: Collection[str], recipe: str | None, device: torch.device) -> Replaced:
    """Replace the layers of these KINDS in the blocks of a model on the meta device. Parameters stay the same objects,
    with their names, and the state of the model is that of torch's layers. A model keeps layers whose classes are its
    own. `recipe`: that of products in FP8, if any, which is torchao's for torch's layers.

    Raises:
        UnusableSettingsError: the library lacks what is needed, or torchao does; or no layer can be replaced, or none
            that is to compute in FP8.
    """
    by_engine = recipe is not None and LINEAR in kinds
    if recipe is not None and not by_engine:
        fp8.convert(model, recipe, device)
    counts = {kind: _replaced(model, kind, device) for kind in KINDS if kind in kinds}
    if recipe is not None and by_engine:
        for block in model.blocks():
            block.forward = functools.partial(_in_fp8, _scaling(recipe), block.forward)
    needed = [counts[LINEAR]] if by_engine else [*counts.values()]
    if needed and not any(done for done, _ in needed):
        raise UnusableSettingsError(f"layers: {_LIBRARY} can replace {in_words(counts)} layers of the blocks")
    return counts


def _replaced(model: BenchmarkModel, kind: str, device: torch.device) -> tuple[int, int]:
    """Replace the layers of a kind in the blocks: how many were replaced, and of how many."""
    done = there = 0
    for parent in [each for block in model.blocks() for each in block.modules()]:
        for name, layer in list(parent.named_children()):
            if isinstance(layer, _TORCHS[kind]):
                there += 1
                made = _made(layer)
                if made is not None:
                    done += 1
                    setattr(parent, name, _with_parameters_of(layer, made, device))
    return done, there


def in_words(replaced: Replaced) -> str:
    """How many layers of which kinds, such as "6 of 7 linear and 2 of 2 norm"."""
    return " and ".join(f"{done} of {there} {kind}" for kind, (done, there) in replaced.items())


def _made(layer: nn.Module) -> nn.Module | None:
    """The library's layer for one of torch's, on the meta device; None: it stays."""
    kind = type(layer)
    if kind is nn.Linear:
        assert isinstance(layer, nn.Linear)
        rows, columns, has_bias = layer.in_features, layer.out_features, layer.bias is not None
        if rows % MULTIPLE or columns % MULTIPLE:
            return None
        return _class("Linear")(rows, columns, bias=has_bias, device="meta")
    if kind in _TORCHS[NORM]:
        assert isinstance(layer, nn.RMSNorm | nn.LayerNorm)
        names = {name for name, _ in layer.named_parameters()}
        wanted = {"weight"} if kind is nn.RMSNorm else {"weight", "bias"}
        if layer.eps is None or names != wanted:
            return None
        return _class(kind.__name__)(layer.normalized_shape[-1], eps=layer.eps, device="meta")
    return None


@functools.cache
def _class(name: str) -> Callable[..., nn.Module]:
    """The library's class, whose layers add nothing to the state of a model: no recipe used here has any."""
    found = getattr(_module("pytorch"), name, None)
    if found is None:
        raise UnusableSettingsError(f"layers: this {_LIBRARY} has no {name}")
    plain = {each: getattr(nn.Module, each) for each in ("get_extra_state", "set_extra_state")}
    made: Callable[..., nn.Module] = type(name, (found,), plain)
    return made


def _with_parameters_of(layer: nn.Module, made: nn.Module, device: torch.device) -> nn.Module:
    for name, parameter in layer.named_parameters():
        setattr(made, name, parameter)
    # Its place for a bias that there is not, which is no parameter, would stay on the meta device.
    for name, value in list(vars(made).items()):
        if isinstance(value, Tensor) and value.is_meta:
            setattr(made, name, torch.zeros_like(value, device=device))
    return made


def _scaling(recipe: str) -> object:
    """The library's recipe: one scale for a tensor, of its own largest element, E4M3 forward and E5M2 backward."""
    if recipe != "tensorwise":
        raise UnusableSettingsError(f"fp8 = {recipe!r}: {_LIBRARY} has no such recipe; allowed: 'tensorwise'")
    made = getattr(_module("common.recipe"), "Float8CurrentScaling", None)
    if made is None:
        raise UnusableSettingsError(f"fp8 = {recipe!r}: this {_LIBRARY} has no Float8CurrentScaling")
    found: object = made()
    return found


def _in_fp8(recipe: object, forward: Callable[..., Tensor], *inputs: Any) -> Tensor:
    library = _module("pytorch")
    # Renamed in version 2.9.
    if hasattr(library, "autocast"):
        context = library.autocast(enabled=True, recipe=recipe)
    else:
        context = library.fp8_autocast(enabled=True, fp8_recipe=recipe)
    with context:
        return forward(*inputs)


def _module(name: str) -> Any:
    try:
        return importlib.import_module(f"{_LIBRARY}.{name}")
    except (ImportError, OSError, RuntimeError) as error:
        raise UnusableSettingsError(f"layers: {_LIBRARY}.{name} does not import: {error}") from error
