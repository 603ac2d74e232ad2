"""Reads YAML in which no key is there twice, or says which package it takes."""

from pathlib import Path
from typing import Any

from common.errors import SimulationError, input_problem

_SHOWN = 200  # characters of a parser's message


def file_text(path: Path, flag: str) -> str:
    """The text of the file that an option `flag` names.

    Raises:
        InputProblems: it cannot be read, or is no UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise input_problem(flag, path, error.strerror or "cannot be read") from error
    except UnicodeDecodeError as error:
        raise input_problem(flag, path, f"is no YAML: {error}") from error


def parsed_yaml(text: str, path: Path, flag: str) -> object:
    """What a YAML text says. `path` is the file of mistakes in it; `flag` the option that needs the package.

    Raises:
        InputProblems: it is no YAML, is nested too deeply, or has a key twice.
        SimulationError: PyYAML is not installed.
    """
    try:
        import yaml  # here: it takes 10 ms, and most runs read no YAML
    except ImportError as error:
        raise SimulationError(f"{flag} needs PyYAML: pip install -r requirements/simulation.txt") from error

    class Loader(yaml.SafeLoader):  # type: ignore[misc] # PyYAML has no types
        """Refuses a key that is there twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            """See yaml.SafeLoader."""
            keys = [key.value for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise input_problem(f"{path}, line {node.start_mark.line + 1}", key, "is there more than once")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except RecursionError as error:
        raise input_problem(str(path), None, "is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:
        raise input_problem(str(path), None, f"is no YAML: {' '.join(str(error).split())[:_SHOWN]}") from error
