"""Builds the library of the abacus, the device of tests, once per version of torch and of its source."""

import hashlib
import os
import subprocess
import sysconfig
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("abacus") / "device.cpp"
CACHE = Path(__file__).parents[2] / ".cache"
LONGEST_S = 600


def abacus_library() -> Path:
    """The library for this torch, from the cache or compiled without optimization: half a minute on an idle core."""
    key = hashlib.sha256(SOURCE.read_bytes() + f"{torch.__version__} {sysconfig.get_platform()}".encode()).hexdigest()
    target = CACHE / f"abacus-{key[:16]}.so"
    if target.is_file():
        return target
    CACHE.mkdir(exist_ok=True)
    temporary = target.with_suffix(f".{os.getpid()}")
    root = Path(torch.__file__).parent
    headers = [root / "include", root / "include/torch/csrc/api/include", Path(sysconfig.get_path("include"))]
    argv = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", "-w", "-DTORCH_EXTENSION_NAME=abacus_device"]
    argv += [f"-I{folder}" for folder in headers]
    argv += [str(SOURCE), "-o", str(temporary), f"-L{root / 'lib'}"]
    argv += ["-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=LONGEST_S)
    assert done.returncode == 0, done.stderr[-4000:]
    temporary.replace(target)
    return target
