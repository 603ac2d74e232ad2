"""Keeps machine code that numba compiled once, and loads it without numba.

numba and what it imports take a second and 100 MB to start; a loader of machine code takes a tenth of both.
"""

import fcntl
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

import llvmlite
from llvmlite import binding as llvm

OPTIMISED = 3
DIGEST_BYTES = hashlib.sha256().digest_size
OF_CHECKOUT = b"$Format:"  # in numba's _version.py where git alone knows the version
OF_NUMBA = "numba", "NRT"  # what names of functions begin with that no code without numba may call


@cache
def file_of(folder: Path, sources: Sequence[str], entry: str) -> Path | None:
    """Where the code of these modules in a folder is for this machine, beside the user's other caches or where numba is
    told to keep its own; None for a user without a home, and for a checkout of numba. The modules, this one, and what
    compiles them are in its name.
    """
    texts = [(folder / f"{name}.py").read_bytes() for name in sources] + [Path(__file__).read_bytes()]
    versions = [sys.version, llvmlite.__version__, llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()]
    # importlib.metadata takes longer to import than the code to load; some installations have a finder of their own.
    numba = next(filter(None, (finder.find_spec("numba", None) for finder in sys.meta_path)), None)
    version = b""
    with suppress(OSError):
        version = Path(numba.origin).with_name("_version.py").read_bytes() if numba and numba.origin else b""
    if OF_CHECKOUT in version:
        return None
    texts.append(version)
    with suppress(RuntimeError):
        caches = Path(os.environ.get("NUMBA_CACHE_DIR") or Path.home() / ".cache" / "clusterdyno" / "compiled")
        return caches / hashlib.sha256(b"".join(texts) + " ".join(versions).encode()).hexdigest()[:16] / f"{entry}.o"
    return None


def kept_or_made(file: Path | None, make: Callable[[], bytes]) -> bytes:
    """The code that is kept, or that `make` compiles: of several processes that need it, one does."""
    code = kept(file)
    if code is None:
        with _locked(file):
            code = kept(file)
            if code is None:
                code = make()
                keep(code, file)
    return code


@contextmanager
def _locked(file: Path | None) -> Iterator[None]:
    """Hold the lock beside the file, if there can be one."""
    lock = None
    with suppress(OSError):
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            lock = file.with_suffix(".lock").open("ab")
            fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if lock is not None:
            lock.close()


def kept(file: Path | None) -> bytes | None:
    """The code that `keep` wrote; None if there is none, or it is unreadable or damaged: loading that ends Python."""
    with suppress(OSError):
        content = file.read_bytes() if file else b""
        digest, code = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        return code if digest == hashlib.sha256(code).digest() else None
    return None


def keep(code: bytes, file: Path | None) -> None:
    """Write the code behind its digest for later runs, if that is possible; else nothing is left of it."""
    if file is None:
        return
    new = file.with_name(f"{file.stem}.{os.urandom(8).hex()}")  # machines that share a home have the same process ids
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with new.open("xb") as written:
                written.write(hashlib.sha256(code).digest() + code)
                written.flush()
                os.fsync(written.fileno())
            new.replace(file)
        finally:
            new.unlink(missing_ok=True)


def _machine() -> llvm.TargetMachine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=OPTIMISED, codemodel="jitdefault", jit=True
    )


@cache
def _engine() -> llvm.ExecutionEngine:
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine())  # holds the code while the program runs


def loaded(code: bytes, entry: str) -> int:
    """The address of the function `entry` of the code."""
    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address: int = engine.get_function_address(entry)
    return address


def emitted(text: str, name: str, entry: str) -> bytes:
    """The object file of one function of a module, from then on `entry`, and of nothing that it does not call."""
    module = llvm.parse_assembly(text)
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = "internal"
    module.get_function(name).name = entry
    machine = _machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=OPTIMISED))
    builder.getModulePassManager().run(module, builder)
    if any(each.is_declaration and each.name.startswith(OF_NUMBA) for each in module.functions):
        raise AssertionError(f"{entry} calls functions of numba")
    code: bytes = machine.emit_object(module)
    return code
