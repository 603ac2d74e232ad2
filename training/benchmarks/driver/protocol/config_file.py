"""Python files that users write: executed, and the names they assign read; mistakes in them, each with its place."""

import ast
import difflib
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

OVERRIDE = "override"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigProblem:
    """One mistake: where it stands, key and value, what is wrong, and what is allowed.

    `known` are all names of which `key` should have been one, `known_as` what they are in words.
    """

    source: str
    key: str
    value: object
    message: str
    allowed: str
    nearest: str | None = None
    known: tuple[str, ...] = ()
    known_as: str = ""

    @property
    def is_from_file(self) -> bool:
        """Whether it stands in a file, not in an override."""
        return self.source != OVERRIDE

    @property
    def sentence(self) -> str:
        """What is wrong and what is allowed; the nearest name is `nearest`'s to say where there are known ones."""
        text = self.message
        if self.nearest is not None and not self.known:
            text += f"; did you mean {self.nearest!r}?"
        if self.allowed:
            text += f"; allowed: {self.allowed}" if text else f"expected {self.allowed}"
        return text

    def __str__(self) -> str:
        """One line for a person."""
        place = f"{self.source}: {self.key} = {self.value!r}" if self.key else self.source
        hint = f"; did you mean {self.nearest!r}?" if self.nearest is not None and self.known else ""
        return f"{place}: {self.sentence}{hint}"


class CaseConfigError(Exception):
    """A case config that cannot be used; `problems` holds every mistake found, not only the first."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(problems)
        known = {(problem.known_as, problem.known) for problem in self.problems if problem.known}
        lines = [str(problem) for problem in self.problems]
        super().__init__("\n".join([*lines, *(f"{known_as}: {', '.join(names)}" for known_as, names in sorted(known))]))


def read_config_file(path: Path) -> dict[str, object]:
    """Names and values that the plain-Python config file `path` assigns at module level (underscored ones left out).

    Raises:
        CaseConfigError: the file is missing, does not parse or fails when executed; the message names the line.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CaseConfigError([_unreadable(path, error)]) from error
    namespace: dict[str, object] = {"__name__": "case_config", "__file__": str(path)}
    try:
        tree = ast.parse(text, filename=str(path))
        exec(compile(tree, str(path), "exec"), namespace)
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else _last_line(path, error)
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        message = f"line {line}: {type(error).__name__}: {reason}"
        raise CaseConfigError(
            [ConfigProblem(source=str(path), key="", value=None, message=message, allowed="plain Python assignments")]
        ) from error
    return {name: namespace[name] for name in _assigned_names(tree) if name in namespace and not name.startswith("_")}


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that is most like `name`; None where none is."""
    matches = difflib.get_close_matches(name, list(known), n=1)
    return matches[0] if matches else None


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


def _unreadable(path: Path, error: OSError | UnicodeDecodeError) -> ConfigProblem:
    siblings = sorted(file.name for file in path.parent.glob("*.py")) if path.parent.is_dir() else []
    return ConfigProblem(
        source=str(path),
        key="",
        value=None,
        message=f"cannot be read: {error}",
        allowed=f"a config file; in its folder are {', '.join(siblings)}" if siblings else "a config file",
        nearest=nearest_name(path.name, siblings),
    )
