"""A vendor's own layers, optimizer and launch of a model: the folder extern/ beside its case configs, as in FlagPerf.

The head node reads the files and runs nothing of them; ranks import the folder as a package.
"""

import ast
import difflib
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vendors.case_files import CaseFileError

FOLDER = "extern"
ENTRY = "__init__.py"
LAUNCH = "launch"
CONVERT_MODEL = "convert_model"
CREATE_OPTIMIZER = "create_optimizer"
PARAMETERS: Mapping[str, tuple[str, ...]] = {
    # In each rank's process before torch is imported; returns nothing, may change the environment.
    LAUNCH: ("environment", "local_rank"),
    # The model on the meta device, before it is divided; returns it with other layers and the same parameters.
    CONVERT_MODEL: ("model", "config"),
    # Parameter groups, dicts with params and weight_decay; returns a torch.optim.Optimizer over them.
    CREATE_OPTIMIZER: ("groups", "config"),
}
OF_TRAININGS = (CONVERT_MODEL, CREATE_OPTIMIZER)
"""Called by the shared trainer alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Extern:
    """A vendor's own parts of a model: the names of its functions, and the sha256 of each file by its path below
    vendors/. Nothing by default. `entry` is the package's first file.
    """

    functions: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    entry: Path | None = None

    def function(self, name: str) -> Callable[..., Any] | None:
        """One of the functions, imported; None where the vendor has none.

        Raises:
            CaseFileError: the package does not import, or lacks the function after all.
        """
        if name not in self.functions or self.entry is None:
            return None
        found: Callable[..., Any] | None = getattr(_package(self.entry), name, None)
        if not callable(found):
            raise CaseFileError(self.entry, 1, f"{name} is no function once it is imported")
        return found


NOTHING = Extern()


def find(directory: Path, *, is_training: bool = True) -> Extern:
    """The vendor's own parts in extern/ of a case's folder; its files are parsed, not executed.

    Raises:
        CaseFileError: a file is no Python, a public function is none of those that are called, or is called otherwise.
    """
    folder = directory / FOLDER
    if not folder.is_dir():
        return NOTHING
    entry = folder / ENTRY
    if not entry.is_file():
        raise CaseFileError(entry, 1, f"no such file; {FOLDER}/ is a package with {_listed(PARAMETERS)}")
    files, trees = {}, {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        if path.suffix != ".py":
            raise CaseFileError(path, 1, "is no .py file, and others are not brought to the hosts")
        data = path.read_bytes()
        files[path.relative_to(directory.parents[1]).as_posix()] = hashlib.sha256(data).hexdigest()
        trees[path] = _parsed(path, data)
    functions = tuple(name for name, line in _functions(trees[entry]) if _checked(entry, name, line, trees[entry]))
    if not functions:
        raise CaseFileError(entry, 1, f"supplies nothing; expected one of {_listed(PARAMETERS)}")
    without_effect = [name for name in functions if name in OF_TRAININGS and not is_training]
    if without_effect:
        raise CaseFileError(entry, 1, f"{', '.join(without_effect)} has no effect: this benchmark is no training")
    return Extern(functions=functions, files=files, entry=entry)


def _parsed(path: Path, data: bytes) -> ast.Module:
    try:
        return ast.parse(data, filename=str(path))
    except (SyntaxError, ValueError) as error:
        raise CaseFileError(path, getattr(error, "lineno", None) or 1, f"is no Python: {error}") from error


def _functions(tree: ast.Module) -> list[tuple[str, int]]:
    """Public functions that the module defines, and imported names that are called like ours, with their lines."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            found.append((node.name, node.lineno))
        elif isinstance(node, ast.ImportFrom):
            names = (alias.asname or alias.name for alias in node.names)
            found += [(name, node.lineno) for name in names if name in PARAMETERS]
    return found


def _checked(entry: Path, name: str, line: int, tree: ast.Module) -> bool:
    if name not in PARAMETERS:
        near = difflib.get_close_matches(name, PARAMETERS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "a helper's name begins with _"
        raise CaseFileError(entry, line, f"{name!r} is none of {_listed(PARAMETERS)}; {hint}")
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            taken = tuple(each.arg for each in (*node.args.posonlyargs, *node.args.args))
            if taken != PARAMETERS[name]:
                wanted = ", ".join(PARAMETERS[name])
                raise CaseFileError(entry, line, f"{name}({', '.join(taken)}) is called as {name}({wanted})")
    return True


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(names)


def _package(entry: Path) -> Any:
    """The package, imported once under a name of its own: the folder's name, bert-pytorch, is none of Python's."""
    name = f"vendors_{FOLDER}_" + hashlib.sha256(str(entry).encode()).hexdigest()[:12]
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, entry, submodule_search_locations=[str(entry.parent)])
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise CaseFileError(entry, 1, f"does not import: {type(error).__name__}: {error}") from error
    return module
