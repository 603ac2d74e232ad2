"""Products of square matrices in every type, each with a check of its result."""

import torch
from torch import Tensor

from training.benchmarks.base.pytorch.twins import bits_of
from training.benchmarks.driver.workload.accelerator import accelerators, is_accelerator
from training.benchmarks.driver.workload.usage import UnusableSettingsError

PREFIX = "matmul_"
SUSTAINED = "matmul_sustained"
_TERA = 1e12
_CHECKED_ROWS = 16
_DTYPES = {
    "matmul_fp64": torch.float64,
    "matmul_fp32": torch.float32,
    "matmul_tf32": torch.float32,
    "matmul_bf16": torch.bfloat16,
    "matmul_fp16": torch.float16,
}


class MatMul:
    """C = A B of square matrices: 2 n^3 operations.

    Timed are elements of the standard normal distribution, as in training: few distinct values switch fewer
    transistors, take less power, and are up to 14 % faster on an H200 at its power limit. Checked are multiples of 1/8
    in [-1, 1]: exact in every type, and so are their products and sums in float32 for n up to 2**18. Only C is rounded
    to the type, which the check allows for.
    """

    unit, scale = "TFLOPS", _TERA

    def __init__(self, test: str, size: int, device: torch.device, seed: int) -> None:
        self._tf32 = test == "matmul_tf32"
        self._devices = accelerators(device) if is_accelerator(device) else None
        if self._tf32 and not (self._devices and self._devices.tf32):
            raise UnusableSettingsError("tests: matmul_tf32 needs a device with TF32; elsewhere there is matmul_fp32")
        if self._devices is not None:
            self._devices.add_exactly()
        dtype = _DTYPES[test]
        left, right = _normal_numbers(size, device, seed)
        self._left, self._right = left.to(dtype), right.to(dtype)
        left, right = _whole_numbers(8, size, device, seed)
        self._exact = (left / 8).to(dtype), (right / 8).to(dtype)
        self._product = torch.empty_like(self._left)
        self.work = 2.0 * size**3

    def run(self) -> None:
        """Queue one product of the matrices."""
        if self._devices is not None:
            self._devices.set_tf32(self._tf32)
        torch.mm(self._left, self._right, out=self._product)

    def run_checked(self) -> None:
        """Run once, untimed, on the elements whose product is known: `is_correct` and `digests` are of it."""
        self._left, self._right = self._exact
        self.run()

    def is_correct(self) -> bool:
        """Compare some rows with float64: all are computed the same way, so a broken unit shows in any."""
        return _is_product(self._left, self._right, self._product, torch.finfo(self._product.dtype).eps)

    def digests(self) -> dict[str, int]:
        """The digest of the bits of the product."""
        return {"product": int(bits_of(self._product))}


class Fp8MatMul(MatMul):
    """C = A B with A and B in 8-bit floating point (e4m3) and C in bfloat16, as linear layers are trained in FP8.

    The checked elements are multiples of 1/2 in [-1, 1]: Hopper's units add with 13 bits after the point of the largest
    term, which holds their sums, so that C is exact but for its type; the timed ones are MatMul's. B lies in memory
    column by column, which the units want. `use_fast_accum` is how the datasheets' rates are reached.
    """

    def __init__(self, size: int, device: torch.device, seed: int) -> None:
        dtype = accelerators(device).fp8_dtype(device) if is_accelerator(device) else torch.float8_e4m3fn
        left, right = _normal_numbers(size, device, seed)
        self._left, self._right = left.to(dtype), right.t().contiguous().to(dtype).t()
        left, right = _whole_numbers(2, size, device, seed)
        self._exact = (left / 2).to(dtype), (right / 2).t().contiguous().to(dtype).t()
        self._one = torch.ones((), device=device)
        self._product = torch.empty(size, size, dtype=torch.bfloat16, device=device)
        self.work = 2.0 * size**3

    def run(self) -> None:
        torch._scaled_mm(
            self._left,
            self._right,
            self._one,
            self._one,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
            out=self._product,
        )


class Int8MatMul:
    """C = A B with A and B in 8-bit integers and C in 32-bit ones, which is exact. B lies column by column."""

    unit, scale = "TOPS", _TERA

    def __init__(self, size: int, device: torch.device, seed: int) -> None:
        left, right = _whole_numbers(127, size, device, seed)
        self._left, self._right = left.to(torch.int8), right.to(torch.int8).t().contiguous().t()
        self._product = torch.empty(size, size, dtype=torch.int32, device=device)
        self.work = 2.0 * size**3

    def run(self) -> None:
        """Queue one product of the matrices."""
        torch._int_mm(self._left, self._right, out=self._product)

    def is_correct(self) -> bool:
        """Compare some rows with float64, exactly: all are computed the same way, so a broken unit shows in any."""
        return _is_product(self._left, self._right, self._product, 0.0)

    def digests(self) -> dict[str, int]:
        """The digest of the bits of the product."""
        return {"product": int(bits_of(self._product))}


def create(test: str, size: int, device: torch.device, seed: int) -> MatMul | Int8MatMul:
    """The product of that name, of `size` x `size` elements.

    Raises:
        UnusableSettingsError: the device cannot do it; the message says why.
    """
    if test == SUSTAINED:
        return MatMul("matmul_bf16", size, device, seed)
    if test == "matmul_int8":
        return Int8MatMul(size, device, seed)
    if test != "matmul_fp8":
        return MatMul(test, size, device, seed)
    reason = without_fp8(device)
    if reason is not None:
        raise UnusableSettingsError(f"tests: matmul_fp8: {reason}")
    return Fp8MatMul(size, device, seed)


def without_fp8(device: torch.device) -> str | None:
    """Why the device has no units for 8-bit floating point, None if it has."""
    if not is_accelerator(device):
        return "the CPU has no units for 8-bit floating point (torch computes it element by element)"
    return accelerators(device).fp8_refusal(device)


def _normal_numbers(size: int, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    """Two matrices of the standard normal distribution, float32."""
    generator = torch.Generator(device).manual_seed(seed)
    left, right = (torch.randn(size, size, generator=generator, device=device) for _ in range(2))
    return left, right


def _whole_numbers(bound: int, size: int, device: torch.device, seed: int) -> tuple[Tensor, Tensor]:
    """Two matrices of whole numbers from -bound to bound, float64."""
    generator = torch.Generator(device).manual_seed(seed)
    shape = (size, size)
    left, right = (
        torch.randint(-bound, bound + 1, shape, generator=generator, device=device, dtype=torch.float32)
        for _ in range(2)
    )
    return left, right


def _is_product(left: Tensor, right: Tensor, product: Tensor, eps: float) -> bool:
    """Whether some rows of `product` are those of left x right in float64, up to eps of each value."""
    rows = torch.linspace(0, len(left) - 1, _CHECKED_ROWS, device=left.device).long()
    exact = left.double()[rows] @ right.double()
    return bool(((product[rows].double() - exact).abs() <= eps * exact.abs()).all())
