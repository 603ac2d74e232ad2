"""Matrix products and copies that are timed on a device, each with a check of its result."""

from typing import Protocol

import torch
from torch import Tensor

from training.benchmarks.base.pytorch.config import Config
from training.benchmarks.driver.workload.usage import UnusableSettingsError

_TERA, _GIGA = 1e12, 1e9
_CHECKED_ROWS = 16
_DTYPES = {
    "matmul_fp64": torch.float64,
    "matmul_fp32": torch.float32,
    "matmul_tf32": torch.float32,
    "matmul_bf16": torch.bfloat16,
    "matmul_fp16": torch.float16,
}


class Operation(Protocol):
    """One test on one device: `run` is timed; its result is `work` / seconds / `scale`, in `unit`."""

    unit: str
    work: float
    scale: float

    def run(self) -> None:
        """Run once; on CUDA the work is queued on the current stream."""
        ...

    def is_correct(self) -> bool:
        """Whether the last run left the correct result."""
        ...


class MatMul:
    """C = A B of square matrices: 2 n^3 operations.

    The elements are multiples of 1/8 in [-1, 1]: exact in every type, and so are their products and sums in float32 for
    n up to 2**18. Only C is rounded to the type, which the check allows for.
    """

    unit, scale = "TFLOPS", _TERA

    def __init__(self, test: str, size: int, device: torch.device, seed: int) -> None:
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        self._dtype = _DTYPES[test]
        self._tf32 = test == "matmul_tf32"
        if self._tf32 and device.type != "cuda":
            raise UnusableSettingsError("tests: matmul_tf32 needs a CUDA device; for the CPU there is matmul_fp32")
        generator = torch.Generator(device).manual_seed(seed)
        self._left, self._right = (
            (torch.randint(-8, 9, (size, size), generator=generator, device=device) / 8).to(self._dtype)
            for _ in range(2)
        )
        self._product = torch.empty_like(self._left)
        self.work = 2.0 * size**3

    def run(self) -> None:
        """See Operation."""
        torch.backends.cuda.matmul.allow_tf32 = self._tf32
        torch.mm(self._left, self._right, out=self._product)

    def is_correct(self) -> bool:
        """Compare some rows with float64: all are computed the same way, so a broken unit shows in any."""
        rows = torch.linspace(0, len(self._left) - 1, _CHECKED_ROWS, device=self._left.device).long()
        exact = self._left[rows].double() @ self._right.double()
        allowed = torch.finfo(self._dtype).eps * exact.abs()
        return bool(((self._product[rows].double() - exact).abs() <= allowed).all())


class Copy:
    """A buffer that is copied into another; the copy is compared with the original."""

    unit, scale = "GB/s", _GIGA

    def __init__(self, source: Tensor, target: Tensor, *, accesses: int) -> None:
        self._source, self._target = source, target
        self.work = float(accesses * source.numel() * source.element_size())

    def run(self) -> None:
        """See Operation."""
        self._target.copy_(self._source, non_blocking=True)

    def is_correct(self) -> bool:
        """See Operation."""
        return torch.equal(self._source, self._target.to(self._source.device))


def create(test: str, config: Config, device: torch.device) -> Operation:
    """The operation of that name. `memory` counts each byte twice, read and written, the others count it once.

    On the CPU host and device share their memory: the host copies are copies within it that count each byte once.
    """
    if test in _DTYPES:
        return MatMul(test, config.matmul_size, device, config.seed)
    count = config.copy_bytes // 8
    pin = device.type == "cuda"
    values = torch.arange(config.seed, config.seed + count, dtype=torch.int64)
    if test == "memory":
        return Copy(values.to(device), torch.zeros(count, dtype=torch.int64, device=device), accesses=2)
    on_host = values.pin_memory() if pin else values
    if test == "host_to_device":
        return Copy(on_host, torch.zeros(count, dtype=torch.int64, device=device), accesses=1)
    target = torch.zeros(count, dtype=torch.int64, pin_memory=pin)
    return Copy(values.to(device), target, accesses=1)
