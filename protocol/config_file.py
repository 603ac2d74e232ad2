"""Executes the Python files that users write, reads the names they assign, and locates mistakes in them."""

import ast
import traceback
from pathlib import Path

from common.errors import ABSENT, InputProblems, Problem, closest

OVERRIDE = "override"
SERVES = "serves"
COMMON = "common"


def read_config_file(path: Path) -> dict[str, object]:
    """Names and values that the plain-Python config file `path` assigns at module level (underscored ones left out).

    Raises:
        InputProblems: the file is missing, does not parse or fails when executed; the message names the line.
    """
    text = text_of(path)
    namespace: dict[str, object] = {"__name__": "case_config", "__file__": str(path)}
    try:
        tree = ast.parse(text, filename=str(path))
        exec(compile(tree, str(path), "exec"), namespace)
    except (Exception, SystemExit) as error:
        allowed = f"{failed_at(path, error)}; allowed: plain Python assignments"
        raise InputProblems([Problem(str(path), "", ABSENT, allowed)]) from error
    return {name: namespace[name] for name in _assigned_names(tree) if name in namespace and not name.startswith("_")}


def common_folder(folder: Path) -> Path:
    """The folder of the configs that all vendors have, beside <vendor>/<model>-<framework>/config."""
    parents = folder.absolute().parents
    return parents[min(2, len(parents) - 1)] / COMMON / folder.absolute().parent.name / folder.name


def config_files(folder: Path) -> dict[str, Path]:
    """The file of each case config of a folder by the config's name, in the order of names."""
    own = {file.stem: file for file in folder.glob("*.py")}
    served = {name: file for file in own.values() for name in _served(file)}
    return dict(sorted({**served, **own}.items()))


def config_file(folder: Path, name: str) -> Path:
    """The file that serves the case config `name`, of the folder or of all vendors; else the one to be written."""
    own = folder / f"{name}.py"
    return own if own.is_file() else {**config_files(common_folder(folder)), **config_files(folder)}.get(name, own)


def _served(file: Path) -> list[str]:
    """The names that a file's `serves` lists; what cannot be read is reported where the file itself is executed."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return []
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == SERVES and isinstance(node.value, ast.List):
            constants = [each.value for each in node.value.elts if isinstance(each, ast.Constant)]
            return [value for value in constants if isinstance(value, str)]
    return []


def failed_at(path: Path, error: BaseException) -> str:
    """Line of the file `path` where `error` arose, its type and its message."""
    is_syntax = isinstance(error, SyntaxError) and error.filename == str(path)
    line = error.lineno if isinstance(error, SyntaxError) and is_syntax else _last_line(path, error)
    reason = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"line {line}: {type(error).__name__}: {reason}"


def _assigned_names(tree: ast.Module) -> list[str]:
    names: dict[str, None] = {}
    pending: list[ast.AST] = list(reversed(tree.body))
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            continue
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
            targets = [node.target]
        for target in targets:
            leaves = (leaf for leaf in ast.walk(target) if isinstance(leaf, ast.Name))
            names.update((leaf.id, None) for leaf in leaves if isinstance(leaf.ctx, ast.Store))
        pending.extend(reversed(list(ast.iter_child_nodes(node))))
    return list(names)


def _last_line(path: Path, error: BaseException) -> int | None:
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return lines[-1] if lines else None


def text_of(path: Path) -> str:
    """The text of a config file, before it is executed.

    Raises:
        InputProblems: it is missing or no text.
    """
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputProblems([_unreadable(path, error)]) from error


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> Problem:
    siblings = sorted({*config_files(path.parent), *config_files(common_folder(path.parent))})
    near = closest(path.stem, siblings)
    hint = f"; did you mean {near!r}?" if near else ""
    there = f"; its folder has {', '.join(siblings)}" if siblings else ""
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return Problem(str(path), "", ABSENT, f"cannot be read: {reason}{hint}; allowed: a config file{there}")
