"""Reads FlagPerf's Python configs: by their syntax if possible, else by running them in a separate process.

Most are plain values; some import torch, which the head node lacks, for a value without meaning here. So a file is run
only if a needed value is computed by more than names, numbers and operators. FlagPerf runs its users' files in the same
way; here a run has 30 seconds and its own process.
"""

import ast
import json
import operator
import subprocess
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.errors import ABSENT, Problem

RUN_SECONDS = 30.0
LARGEST_EXPONENT = 64
_RUN = """
import json, runpy, sys
sys.path[:0] = sys.argv[2:]
names = runpy.run_path(sys.argv[1])
plain = (str, int, float, bool, list, dict, tuple, type(None))
print(json.dumps({k: v for k, v in names.items() if not k.startswith("_") and isinstance(v, plain)}, default=str))
"""
_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Pow: operator.pow, ast.USub: operator.neg,
}  # fmt: skip


class _ComputedError(Exception):
    """An expression needs more than its syntax."""


@dataclass
class Conf:
    """Names and values of one file; `computed`: names whose value its syntax does not give, with their lines."""

    path: Path
    values: dict[str, Any] = field(default_factory=dict)
    computed: dict[str, int] = field(default_factory=dict)


def read_conf(path: Path, needed: Collection[str] | None, problems: list[Problem]) -> Conf | None:
    """Names and values that a config assigns; None, with the reason in `problems`, if it cannot be read.

    Args:
        needed: names for which the file is run if its syntax does not give them; None: all.
    """
    conf = Conf(path)
    try:
        _read(path, conf, set())
    except (OSError, UnicodeDecodeError, SyntaxError) as error:
        problems.append(Problem(str(path), "", ABSENT, f"cannot be read as a Python file: {error}"))
        return None
    wanted = [name for name in conf.computed if needed is None or name in needed]
    if wanted:
        _run(conf, wanted, problems)
    return conf


def _read(path: Path, conf: Conf, seen: set[Path]) -> None:
    seen.add(path)
    for node in ast.parse(path.read_text(encoding="utf-8"), filename=str(path)).body:
        if isinstance(node, ast.ImportFrom) and [alias.name for alias in node.names] == ["*"]:
            other = path.parent / f"{(node.module or '').replace('.', '/')}.py"
            if other.is_file() and other not in seen:
                _read(other, conf, seen)
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            _assign(conf, _targets(node), node.value)
        elif isinstance(node, ast.If | ast.For | ast.While | ast.With | ast.Try | ast.AugAssign):
            conf.computed |= _stored(node)


def _stored(statement: ast.stmt) -> dict[str, int]:
    """The names that a statement assigns anywhere in it, with the lines."""
    names = (each for each in ast.walk(statement) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store))
    return {each.id: each.lineno for each in names}


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _assign(conf: Conf, names: list[str], value: ast.expr) -> None:
    for name in names:
        conf.values.pop(name, None)
        conf.computed.pop(name, None)
        try:
            conf.values[name] = _evaluated(value, conf.values)
        except _ComputedError:
            conf.computed[name] = value.lineno


def _evaluated(node: ast.expr, names: dict[str, Any]) -> Any:
    if isinstance(node, ast.Name) and node.id in names:
        return names[node.id]
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.List | ast.Tuple):
        return [_evaluated(item, names) for item in node.elts]
    if isinstance(node, ast.Dict) and None not in node.keys:
        keys = [_evaluated(key, names) for key in node.keys if key is not None]
        return dict(zip(keys, (_evaluated(item, names) for item in node.values), strict=True))
    if isinstance(node, ast.UnaryOp | ast.BinOp):
        return _operated(node, names)
    raise _ComputedError


def _operated(node: ast.UnaryOp | ast.BinOp, names: dict[str, Any]) -> Any:
    operation = _OPERATORS.get(type(node.op))
    parts = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
    values = [_evaluated(part, names) for part in parts]
    is_huge = isinstance(node.op, ast.Pow) and not abs(values[1]) <= LARGEST_EXPONENT
    if operation is None or is_huge:
        raise _ComputedError
    try:
        return operation(*values)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _ComputedError from error


def _run(conf: Conf, wanted: list[str], problems: list[Problem]) -> None:
    argv = [sys.executable, "-c", _RUN, str(conf.path), str(conf.path.parent)]
    try:
        answer = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_SECONDS, stdin=subprocess.DEVNULL)
        found = json.loads(answer.stdout.splitlines()[-1]) if answer.returncode == 0 else {}
        why = "" if answer.returncode == 0 else (answer.stderr.strip().splitlines() or ["it failed"])[-1]
    except (subprocess.TimeoutExpired, OSError, ValueError, IndexError) as error:
        found, why = {}, str(error)
    for name in wanted:
        if name in found:
            conf.values[name] = found[name]
            del conf.computed[name]
            continue
        allowed = f"line {conf.computed[name]} computes it, and the file does not run here ({why or 'no plain value'})"
        problems.append(Problem(str(conf.path), name, ABSENT, f"{allowed}; write the value itself"))
