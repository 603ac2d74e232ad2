"""Shared code names no vendor: what differs between devices is asked of the vendor's folder."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import vendors

ROOT = Path(vendors.__file__).parent.parent
# workloads/ and simulation/ describe jobs and machines, measured GPUs among them; they use no device.
SHARED = ("common", "container", "monitors", "protocol", "run_benchmarks", "training")
# Names of vendors (but cpu, which is torch's and the host's), of their types of devices, backends, drivers and tools,
# and the variables of their libraries.
VENDORS = "|".join(name for name in vendors.available() if name != "cpu")
WORDS = re.compile(
    rf"\b({VENDORS}|cuda|cudnn|nccl(?!-tests)|rocm|rccl|hip|npus?|hccl|hccn_tool|xpu|xccl|musa|mccl|mlu|cncl|ixsmi|cnmon|hpu"
    r"|nvrm|nv-fabricmanage\w*|dcgmi?|amdgpu|rvs|huawei|davinci\w*|habana\w*|hl-smi|hl_qual|hygon"
    r"|(?-i:(?:NVIDIA|CUDA|NCCL|HIP|ROCR|RCCL|ASCEND|HCCL|XPU|MUSA|MCCL|MLU|CNCL)_[A-Z][A-Z0-9_]*))\b",
    re.IGNORECASE,
)
# Files that speak of one vendor's product by its nature, and why.
EXEMPT = {
    "container/context/install_packages.py": "runs in the build of an image, beside nothing of the project",
    "monitors/nccl_log.py": "the lines that NCCL and RCCL log",
    "monitors/__main__.py": "sys_info.json's key of those lines",
    "run_benchmarks/commands/accepting.py": "where NCCL's inspector writes",
    "run_benchmarks/results/host_findings.py": "sys_info.json's key of those lines",
    "run_benchmarks/results/observations.py": "sys_info.json's key of those lines",
    "run_benchmarks/results/monitor_readings.py": "sys_info.json's key of those lines",
    "training/benchmarks/bert/paddle/group.py": "Paddle's own names of its GPUs",
    "training/benchmarks/bert/paddle/run_pretraining.py": "Paddle's own names of its GPUs",
    "training/benchmarks/bert/paddle/trainer.py": "Paddle's own names of its GPUs",
    "training/benchmarks/network/hosts/nccl_tests.py": "where nccl-tests come from",
    "training/benchmarks/network/hosts/nics.py": "the variables by which NCCL and RCCL are given network devices",
}


def words_in(path: Path) -> Iterator[tuple[int, str]]:
    """Line and word of each name of a vendor in the code: identifiers, imported modules and strings, but no docstrings
    and comments; of a template all lines but comments.
    """
    if path.suffix == ".j2":
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            yield from ((number, found[0]) for found in WORDS.finditer(line) if not line.startswith("#"))
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.Attribute):
            text = node.attr
        elif isinstance(node, ast.Name):
            text = node.id
        elif isinstance(node, ast.ImportFrom):
            text = node.module or ""
        elif isinstance(node, ast.alias):
            text = node.name
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            text = node.value
        for found in WORDS.finditer(text):
            yield int(getattr(node, "lineno", 0)), found[0]


def shared_files() -> list[Path]:
    files = [path for folder in SHARED for kind in ("*.py", "*.j2") for path in sorted((ROOT / folder).rglob(kind))]
    return [path for path in files if "config/" not in str(path)]


def test_shared_code_names_no_vendor() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in shared_files()
        if str(path.relative_to(ROOT)) not in EXEMPT
        for line, word in words_in(path)
    ]
    assert not found, "ask the vendor (vendors/base.py, vendors/device.py) instead: " + ", ".join(found)


def test_every_exemption_is_needed() -> None:
    assert [name for name in EXEMPT if not [*words_in(ROOT / name)]] == []


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ('x = device.type == "cuda"', ["cuda"]),
        ("torch.cuda.synchronize()", ["cuda"]),
        ('environment["NCCL_DEBUG"] = "INFO"', ["NCCL_DEBUG"]),
        ("config.cuda_graph", []),
        ('"""Of NVIDIA\'s GPUs."""  # CUDA', []),
        ('files = ("/dev/nvidia[0-9]*",)', ["nvidia"]),
        ('run(["nvidia-smi"])', ["nvidia"]),
        ("from vendors.gaudi import adapter", ["gaudi"]),
        ("import vendors.dcu.adapter", ["dcu"]),
        ('log = "amdgpu.*ring"', ["amdgpu"]),
        ('tool == "nccl-tests"', []),
    ],
)
def test_the_search_reads_code_and_no_prose(code: str, words: list[str], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(code, encoding="utf-8")
    assert [word for _, word in words_in(path)] == words
