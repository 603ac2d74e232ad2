"""requirements/*.lock: they hold what requirements/*.txt ask for, pinned and hashed, and pip is held to it."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from run_benchmarks.console.command_line import ROOT

FOLDER = ROOT / "requirements"
LOCKS = ("controller", "workload", "simulation", "chakra", "docs", "dev", "torch", "torch-cpu", "torch-cuda")
ENTRY = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")


def pins(text: str) -> dict[str, set[str]]:
    """Versions by normalised name."""
    found: dict[str, set[str]] = {}
    for line in text.splitlines():
        if match := ENTRY.match(line):
            found.setdefault(re.sub(r"[-_.]+", "-", match[1]).lower(), set()).add(match[2])
    return found


def lock(name: str) -> str:
    return (FOLDER / f"{name}.lock").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("asked", "locks"),
    [
        ("controller", ("controller",)),
        ("workload", ("workload", "torch")),
        ("simulation", ("simulation",)),
        ("chakra", ("chakra",)),
        ("docs", ("docs",)),
        ("dev", ("dev",)),
    ],
)
def test_what_is_asked_for_is_locked_at_the_same_version(asked: str, locks: tuple[str, ...]) -> None:
    locked = pins("".join(map(lock, locks)))
    for name, versions in pins((FOLDER / f"{asked}.txt").read_text(encoding="utf-8")).items():
        assert locked.get(name) == versions, f"{name}: run scripts/lock.py"


@pytest.mark.parametrize("name", LOCKS)
def test_every_entry_is_pinned_and_hashed(name: str) -> None:
    blocks = re.split(r"^(?=[A-Za-z0-9])", lock(name), flags=re.MULTILINE)[1:]
    assert blocks
    for block in blocks:
        assert ENTRY.match(block) and re.search(r"--hash=sha256:[0-9a-f]{64}\b", block), block


def test_the_locks_agree_and_the_development_s_holds_all_others() -> None:
    everything = pins(lock("dev"))
    for name in ("controller", "workload", "simulation"):
        for package, versions in pins(lock(name)).items():
            assert everything.get(package, set()) >= versions, package
    (version,) = pins(lock("torch"))["torch"]
    assert pins(lock("torch-cpu")) == {"torch": {f"{version}+cpu"}}
    cuda = pins(lock("torch-cuda")).keys()
    assert "nvidia-nccl-cu13" in cuda and not cuda & everything.keys()


def test_the_cpu_builds_of_every_python_are_locked() -> None:
    lines = (line.split() for line in (FOLDER / "torch-cpu.sha256").read_text().splitlines())
    files = {file: digest for digest, file in lines}
    (version,) = pins(lock("torch"))["torch"]
    for python in ("cp311", "cp312", "cp313", "cp314"):
        for machine in ("x86_64", "aarch64"):
            digest = files[f"torch-{version}+cpu-{python}-{python}-manylinux_2_28_{machine}.whl"]
            assert f"--hash=sha256:{digest}" in lock("torch-cpu")


def wheel(folder: Path, name: str, version: str) -> str:
    """A wheel of one empty package; returns its line of a lock."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", "")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return f"{name}=={version} --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n"


@pytest.mark.nightly
def test_an_installation_takes_no_file_that_is_not_locked(tmp_path: Path) -> None:
    """With the real pip: another file of the same name and version is refused, and a build of torch is the index's."""
    venv, wheels = tmp_path / "venv", tmp_path / "wheels"
    for folder in ("scripts", "requirements", "wheels"):
        (tmp_path / folder).mkdir()
    script = (ROOT / "scripts" / "install.sh").read_text()
    at, gpu = "https://download.pytorch.org/whl/cpu", tmp_path / "nvidia0"
    for text, ours in ((at, (tmp_path / "index").as_uri()), ("/dev/nvidia[0-9]*", f"{tmp_path}/nvidia[0-9]*")):
        assert script.count(text) == 1
        script = script.replace(text, ours)
    (tmp_path / "scripts" / "install.sh").write_text(script)
    (tmp_path / "scripts" / "install.sh").chmod(0o755)
    made = {"controller": wheel(wheels, "one", "1.0"), "workload": wheel(wheels, "two", "1.0")}
    made |= {"torch": wheel(wheels, "torch", "2.0"), "torch-cuda": wheel(wheels, "cudalib", "1.0")}
    index = tmp_path / "index" / "torch"
    index.mkdir(parents=True)
    made["torch-cpu"] = wheel(index, "torch", "2.0+cpu")
    (index / "index.html").write_text('<a href="torch-2.0+cpu-py3-none-any.whl">torch</a>')
    gpu.touch()
    for name, line in made.items():
        (tmp_path / "requirements" / f"{name}.lock").write_text(line)
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PIP_")}
    environment |= {"PIP_CONFIG_FILE": os.devnull, "PIP_ARGS": f"--no-index --find-links '{wheels}'"}

    def install() -> tuple[int, str]:
        argv = [str(tmp_path / "scripts" / "install.sh"), str(venv), "run"]
        done = subprocess.run(argv, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    for name in ("torch", "torch-cuda"):
        (tmp_path / "requirements" / f"{name}.lock").write_text(f"{made[name].split()[0]}\n")
    code, said = install()
    assert code != 0 and "Hashes are required" in said, said
    for name in ("torch", "torch-cuda"):
        (tmp_path / "requirements" / f"{name}.lock").write_text(made[name])
    code, said = install()
    assert code == 0 and "taking PyPI's" in said and "No broken requirements" in said, said
    assert len(list(venv.glob("lib/*/site-packages/*.py"))) >= 4, "the package for CUDA, too"
    gpu.unlink()
    environment["PIP_ARGS"] = f"--index-url '{(tmp_path / 'empty').as_uri()}' --find-links '{wheels}'"
    code, said = install()
    assert code == 0 and "taking PyPI's" not in said, said
    assert list(venv.glob("lib/*/site-packages/torch-2.0+cpu.dist-info")), "no GPU here: the CPU build"
    for path in venv.glob("lib/*/site-packages/two*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with zipfile.ZipFile(wheels / "two-1.0-py3-none-any.whl", "a") as archive:
        archive.writestr("two_more.py", "import os")
    code, said = install()
    assert code != 0 and "DO NOT MATCH THE HASHES" in said, said
    assert not list(venv.glob("lib/*/site-packages/two*"))
