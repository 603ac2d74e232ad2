"""Reads YAML in which no key is there twice, or says which package it takes."""

from collections import Counter
from pathlib import Path
from typing import Any

from common.errors import SimulationError, input_problem

_SHOWN = 200  # characters of a parser's message
_MOST_NODES = 1_000_000
_MOST_BYTES = 64 << 20
_OF_WRONG_TAGS = (LookupError, AttributeError, TypeError, OverflowError)  # PyYAML's for values such as `!!int ''`


def _expanded(node: Any, known: dict[int, int]) -> int:
    """The number of values of a node with each alias written out, those to a node above itself counted once."""
    if id(node) not in known:
        known[id(node)] = 1
        children = node.value if isinstance(node.value, list) else []
        flat = (part for child in children for part in (child if isinstance(child, tuple) else (child,)))
        known[id(node)] = 1 + sum(_expanded(part, known) for part in flat)
    return known[id(node)]


def file_text(path: Path, flag: str) -> str:
    """The text of the file that an option `flag` names.

    Raises:
        InputProblems: it cannot be read, or is no UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise input_problem(flag, path, f"has more than {_MOST_BYTES >> 20} MiB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise input_problem(flag, path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise input_problem(flag, path, f"is no YAML: {error}") from error


def parsed_yaml(text: str, path: Path, flag: str) -> object:
    """The value of a YAML text. `path` is the file of mistakes in it; `flag` the option that needs the package.

    Raises:
        InputProblems: it is no YAML, is nested too deeply, or has a key twice.
        SimulationError: PyYAML is not installed.
    """
    try:
        import yaml  # here: it takes 10 ms, and most runs read no YAML
    except ImportError as error:
        raise SimulationError(f"{flag} needs PyYAML: pip install -r requirements/simulation.txt") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
        """Refuses a key that is there twice, and more values than are read, before they take memory."""

        composed = 0

        def compose_node(self, parent: Any, index: Any) -> Any:
            """The next node; a document that has too many is refused."""
            self.composed += 1
            if self.composed > _MOST_NODES:
                raise input_problem(str(path), None, f"has more than {_MOST_NODES} values")
            return super().compose_node(parent, index)

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """The mapping of a node; a key that is there twice is refused."""
            counts = Counter(key.value for key, _ in node.value if isinstance(key.value, str))
            for key, count in counts.items():
                if count > 1:
                    raise input_problem(f"{path}, line {node.start_mark.line + 1}", key, "is there more than once")
            return super().construct_mapping(node, deep)

    try:
        loader = Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _expanded(node, {}) > _MOST_NODES:
            raise input_problem(
                str(path), None, f"has more than {_MOST_NODES} values where its aliases are written out"
            )
        document: object = loader.construct_document(node)
        return document
    except RecursionError as error:
        raise input_problem(str(path), None, "is nested too deeply") from error
    except (yaml.YAMLError, ValueError, *_OF_WRONG_TAGS) as error:
        raise input_problem(str(path), None, f"is no YAML: {' '.join(str(error).split())[:_SHOWN]}") from error
