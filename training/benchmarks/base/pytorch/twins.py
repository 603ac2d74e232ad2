"""Trains the same small network on every device from the same seed, and digests each of its products bit by bit.

Devices of one kind then have the same digests: all kernels used here are deterministic (of cuBLAS: on one stream, on
the same architecture with the same number of multiprocessors; its documentation, "Results reproducibility").
"""

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from training.benchmarks.driver.workload.accelerator import accelerators, device_name, is_accelerator, processor_type

TEST = "training"
LAYERS, HEADS, WIDTH_STEP = 4, 4, 64
_PRODUCTS = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default, torch.ops.aten.bmm.default)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FACTOR = 6364136223846793005  # odd: to multiply by it, modulo 2**64, loses nothing


def bits_of(values: Tensor) -> Tensor:
    """The sum of the elements, each read as a whole number, modulo 2**64, as a scalar: a flipped bit always changes it.

    `values` has any shape.
    """
    whole = values.contiguous().view(_BITS[values.element_size()])
    return whole.sum(dtype=torch.int64)


def signed(value: int) -> int:
    """A whole number modulo 2**64 as a digest, from -2**63 to 2**63 - 1."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def kind_of(device: torch.device, *versions: str) -> int:
    """A number of 63 bits that devices share whose digests can be compared: model, threads of a CPU, build of torch,
    `versions` of other packages that take part.
    """
    about: list[object] = [torch.__version__, torch.__config__.show(), *versions]
    about.append(device_name(device))
    if is_accelerator(device):
        about += [accelerators(device).capability(device), accelerators(device).multiprocessors(device)]
    else:
        about += [processor_type(), torch.backends.cpu.get_cpu_capability(), torch.get_num_threads()]
    return int.from_bytes(hashlib.sha256(repr(about).encode()).digest()[:8], "big") >> 1


class ProductDigests(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is entered, adds the bits of each product's result to the digest of the `layer` that is at work."""

    def __init__(self, layers: Sequence[str], device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layer = layers[0]
        self._digests = {layer: torch.zeros((), dtype=torch.int64, device=device) for layer in layers}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Call `func`; where it is a product, add its result to the layer's digest."""
        result = func(*args, **(kwargs or {}))
        if func in _PRODUCTS:
            self.add(self.layer, result)
        return result

    def add(self, layer: str, values: Tensor) -> None:
        """Add the bits of `values`, of any shape, to the digest of a layer; the order of additions counts."""
        self._digests[layer].mul_(_FACTOR).add_(bits_of(values))

    def values(self) -> dict[str, int]:
        """The digest of each layer so far, from -2**63 to 2**63 - 1."""
        return {layer: int(digest) for layer, digest in self._digests.items()}


class Training:
    """A transformer of LAYERS layers that learns made-up pairs: `run` is one step, forward, backward and update.

    Its width is half of `size` in WIDTH_STEPs, as many tokens a step; bfloat16 on an accelerator, else float32.
    """

    unit, work, scale = "steps/s", 1.0, 1.0

    def __init__(self, size: int, device: torch.device, seed: int) -> None:
        width = max(WIDTH_STEP, size // 2 // WIDTH_STEP * WIDTH_STEP)
        dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
        draw = torch.Generator().manual_seed(seed)  # the CPU's, which draws the same numbers everywhere

        def drawn(rows: int, columns: int, scale: float) -> Tensor:
            return (torch.randn(rows, columns, generator=draw) * scale).to(device, dtype)

        shapes = ((width, 3 * width), (width, width), (width, 2 * width), (2 * width, width))
        self._layers = [[drawn(*shape, shape[0] ** -0.5).requires_grad_() for shape in shapes] for _ in range(LAYERS)]
        self._given, self._wanted = drawn(width, width, 1.0), drawn(width, width, 1.0)
        self._names = [f"layer {number}" for number in range(LAYERS)]
        self._digests = ProductDigests(self._names, device)
        self._weights = [weight for layer in self._layers for weight in layer]
        self._rate = 0.01

    def run(self) -> None:
        """Make one step: forward, backward and the update of the weights."""
        with self._digests:
            found = self._given
            for name, layer in zip(self._names, self._layers, strict=True):
                self._digests.layer = name
                found = _block(found, layer)
                found.register_hook(partial(self._begin, name))  # type: ignore[no-untyped-call]
            loss = torch.square(found.float() - self._wanted.float()).mean()
            gradients = torch.autograd.grad(loss, self._weights)
        with torch.no_grad():
            for weight, gradient in zip(self._weights, gradients, strict=True):
                weight.sub_(gradient * self._rate)

    def _begin(self, name: str, _: Tensor) -> None:
        """The products of the backward pass from now on are of this layer."""
        self._digests.layer = name

    def is_correct(self) -> bool:
        """Whether every weight is finite."""
        return all(bool(weight.isfinite().all()) for weight in self._weights)

    def digests(self) -> dict[str, int]:
        """The digest of each layer's products and weights."""
        for name, layer in zip(self._names, self._layers, strict=True):
            for weight in layer:
                self._digests.add(name, weight.detach())
        return self._digests.values()


def _block(given: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """Attention over all tokens and two linear layers, each after a normalisation and added to what it got."""
    into, out, up, down = weights
    tokens, width = given.shape
    parts = torch.mm(_normal(given), into).view(tokens, 3, HEADS, width // HEADS).permute(1, 2, 0, 3)
    query, key, value = parts[0], parts[1], parts[2]
    shares = torch.softmax(torch.bmm(query, key.transpose(1, 2)) * (width // HEADS) ** -0.5, dim=-1)
    heads = torch.bmm(shares, value).transpose(0, 1).reshape(tokens, width)
    given = given + torch.mm(heads, out)
    return given + torch.mm(torch.relu(torch.mm(_normal(given), up)), down)


def _normal(values: Tensor) -> Tensor:
    return values * torch.rsqrt(torch.square(values).mean(dim=-1, keepdim=True) + 1e-6)
