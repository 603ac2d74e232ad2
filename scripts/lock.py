"""Writes requirements/*.lock from requirements/*.txt: every package with its version and the hashes of its files.

    python scripts/lock.py                                     # needs uv (pip install uv==0.13.9) and a package index
    python scripts/lock.py --torch-index https://HOST/whl/cpu  # after another torch: also the hashes of its CPU builds

The versions hold for every Python from 3.11 on and every platform; the hashes are those that the index publishes.
PyPI's torch needs CUDA's libraries, the CPU build of PyTorch's own index does not: torch.lock and torch-cuda.lock are
the first and what it needs, torch-cpu.lock is the second, and the other locks hold neither.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "requirements"
CPU_HASHES = FOLDER / "torch-cpu.sha256"
PYTHON = "3.11"
HEADER = "# Written by scripts/lock.py; install with `pip install --require-hashes --no-deps`.\n"
ENTRY = re.compile(r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)==(?P<version>[^\s;\\]+)")
CUDA_ONLY = re.compile(r"^(nvidia-(?!ml-py$).+|cuda-.+|triton)$")
CPU_WHEEL = re.compile(
    r'href="[^"]*/(?P<file>torch-[^"/#]+-cp3\d+-cp3\d+-manylinux_[^"/#]+\.whl)#sha256=(?P<sha256>[0-9a-f]{64})"'
)


def main() -> None:
    """Resolve all together, so that the locks agree, then each input within that."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--torch-index", help="PyTorch's index of CPU builds; without it the hashes of before stay")
    options = parser.parse_args()
    everything = compiled("dev.txt")
    torch = next(entry for entry in entries(everything) if entry.startswith("torch=="))
    if options.torch_index:
        write_cpu_hashes(options.torch_index, version_of(torch))
    cpu = cpu_hashes(version_of(torch))
    if not cpu:
        sys.exit(f"{CPU_HASHES} has no wheel of torch {version_of(torch)}: give --torch-index")
    workload = entries(compiled("workload.txt", everything))
    write("dev.lock", plain(entries(everything)))
    write("controller.lock", entries(compiled("controller.txt", everything)))
    write("workload.lock", plain(workload))
    write("simulation.lock", entries(compiled("simulation.txt", everything)))
    write("analysis.lock", entries(compiled("analysis.txt", everything)))
    write("paddle.lock", entries(compiled("paddle.txt", everything)))
    write("trace.lock", plain(entries(compiled("trace.txt", everything))))
    write("docs.lock", entries(compiled("docs.txt", everything)))
    write("chakra.lock", entries(compiled("chakra.txt", "", "--no-deps")))
    write("gpu-tables.lock", entries(compiled("gpu-tables.txt", "", "--no-deps")))
    write("oracles.lock", entries(compiled("oracles.txt", "", "--no-deps")))
    write("nvidia.lock", entries(compiled("nvidia.txt", "", "--no-deps")))
    write("torch-cpu.lock", [" \\\n    --hash=sha256:".join([f"torch=={version_of(torch)}+cpu", *sorted(cpu)])])
    write("torch.lock", [torch])
    write("torch-cuda.lock", [entry for entry in workload if CUDA_ONLY.match(name_of(entry))])


def compiled(file: str, within: str = "", *options: str) -> str:
    """The lock that uv makes of one of our requirements files, with the versions of another answer of it."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write(re.sub(r"( \\)?\n +--hash=\S+", "", within))
        constraints.flush()
        command = [sys.executable, "-m", "uv", "pip", "compile", "--universal", f"--python-version={PYTHON}", "--quiet"]
        command += ["--generate-hashes", "--no-header", "--no-annotate", f"--constraints={constraints.name}"]
        command += [*options, str(FOLDER / file)]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def entries(text: str) -> list[str]:
    """A requirement with its hashes each, as one text of several lines."""
    return [
        entry.rstrip("\n") for entry in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE) if ENTRY.match(entry)
    ]


def name_of(entry: str) -> str:
    """The package of an entry."""
    match = ENTRY.match(entry)
    assert match is not None
    return match["name"]


def version_of(entry: str) -> str:
    """The version that an entry pins."""
    match = ENTRY.match(entry)
    assert match is not None
    return match["version"]


def plain(found: Iterable[str]) -> list[str]:
    """Entries without torch and without what its CUDA build alone needs."""
    return [entry for entry in found if name_of(entry) != "torch" and not CUDA_ONLY.match(name_of(entry))]


def cpu_hashes(version: str) -> list[str]:
    """sha256 of the CPU builds of a version of torch."""
    lines = (line.split() for line in CPU_HASHES.read_text(encoding="utf-8").splitlines())
    return [digest for digest, file in lines if file.startswith(f"torch-{version}+cpu-")]


def write_cpu_hashes(index: str, version: str) -> None:
    """Replace torch-cpu.sha256 by what the index publishes."""
    with urllib.request.urlopen(f"{index.rstrip('/')}/torch/", timeout=60) as answer:
        page = urllib.parse.unquote(answer.read().decode())
    lines = {f"{m['sha256']}  {m['file']}\n" for m in CPU_WHEEL.finditer(page) if f"-{version}+cpu-" in m["file"]}
    CPU_HASHES.write_text("".join(sorted(lines, key=lambda line: line.split()[1])), encoding="utf-8")


def write(file: str, found: list[str]) -> None:
    """Write one lock."""
    (FOLDER / file).write_text(HEADER + "".join(f"{entry}\n" for entry in found), encoding="utf-8")
    print(f"{file}: {len(found)} packages")


if __name__ == "__main__":
    main()
