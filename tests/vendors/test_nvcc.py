"""Programs of NCCL, nccl-tests among them, are built by the pinned nvcc for torch's CUDA, without a GPU."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.scripts.test_locks import lock, pins

ROOT = Path(__file__).resolve().parents[2]
NVIDIA = next((ROOT / ".cache" / "cuda").glob("lib/python3*/site-packages/nvidia"), Path("/none"))
NCCL_TESTS = ROOT / ".cache" / "nccl-tests"
COMPILER = ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm")
ARCHITECTURE = "-gencode=arch=compute_90,code=sm_90"
pytestmark = pytest.mark.timeout(900)
needs_nvcc = pytest.mark.skipif(
    not (NVIDIA / "cu13/bin/nvcc").exists(),
    reason="no .cache/cuda: make nightly installs nvidia.lock there",
)


def version_of(name: str, file: str) -> str:
    (version,) = pins(lock(file))[name]
    return version


def test_the_parts_of_the_compiler_are_of_one_version_which_is_that_of_the_runtime_of_torch() -> None:
    (version,) = {version_of(name, "nvidia") for name in COMPILER}
    runtime, headers = version_of("nvidia-cuda-runtime", "torch-cuda"), version_of("nvidia-cuda-cccl", "nvidia")
    assert {each.rsplit(".", 1)[0] for each in (version, runtime, headers)} == {"13.0"}
    asked = pins((ROOT / "requirements/nvidia.txt").read_text(encoding="utf-8"))
    assert asked == pins(lock("nvidia")), "run scripts/lock.py"


def linked(folder: Path, nvidia: Path) -> Path:
    """The names by which a linker looks for the libraries of the wheels, which have their versions' alone."""
    folder.mkdir()
    for library in (nvidia / "nccl/lib/libnccl.so.2", nvidia / "cu13/lib/libcudart.so.13"):
        (folder / f"{library.name.partition('.')[0]}.so").symlink_to(library)
        (folder / library.name).symlink_to(library)
    return folder


def done(*argv: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    words = [str(word) for word in argv]
    return subprocess.run(words, env=os.environ | environment, capture_output=True, text=True, timeout=800, check=False)


def built(folder: Path, nvidia: Path = NVIDIA) -> Path:
    """Our own program."""
    libraries = linked(folder / "lib", nvidia)
    source = Path(__file__).with_name("all_reduce.cu")
    ours = [f"-I{nvidia / 'nccl/include'}", f"-L{libraries}", f"-L{nvidia / 'cu13/lib'}", "-lnccl"]
    nvcc = done(nvidia / "cu13/bin/nvcc", ARCHITECTURE, *ours, source, "-o", folder / "all_reduce")
    assert nvcc.returncode == 0, nvcc.stdout + nvcc.stderr
    return folder / "all_reduce"


@pytest.mark.nightly
@needs_nvcc
def test_a_program_with_a_kernel_and_nccl_is_built_and_asks_for_a_driver(tmp_path: Path) -> None:
    ran = done(built(tmp_path), LD_LIBRARY_PATH=str(tmp_path / "lib"), CUDA_VISIBLE_DEVICES="")
    major, minor, patch = map(int, version_of("nvidia-nccl-cu13", "torch-cuda").split("."))
    assert ran.stdout.splitlines()[0] == f"nccl {major * 10000 + minor * 100 + patch} cuda 13000"
    assert ran.returncode == 3 and re.search("driver version is insufficient|no CUDA-capable device", ran.stdout)


@pytest.mark.nightly
@needs_nvcc
@pytest.mark.skipif(not (NCCL_TESTS / "src").is_dir(), reason="no .cache/nccl-tests: its sources cannot be had here")
def test_nccl_tests_are_built_and_ask_for_a_driver(tmp_path: Path) -> None:
    libraries = linked(tmp_path / "lib", NVIDIA)
    words = [f"BUILDDIR={tmp_path}/build", f"CUDA_HOME={NVIDIA}/cu13", f"NCCL_HOME={NVIDIA}/nccl", "-j2"]
    paths = {"NVCC_GENCODE": ARCHITECTURE, "NVCC_APPEND_FLAGS": f"-L{libraries} -L{NVIDIA}/cu13/lib"}
    make = done("make", "-C", NCCL_TESTS / "src", *words, f"{tmp_path}/build/all_reduce_perf", **paths)
    assert make.returncode == 0, make.stdout[-3000:] + make.stderr[-3000:]
    ran = done(tmp_path / "build/all_reduce_perf", "-g", "1", LD_LIBRARY_PATH=str(libraries), CUDA_VISIBLE_DEVICES="")
    assert ran.returncode != 0
    assert re.search("driver version is insufficient|no CUDA-capable device", ran.stdout + ran.stderr)
