"""Reads and writes the file of a job (YAML or JSON): its parameters by name, and makes pydantic fields of them."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from common.errors import MistakeList, input_problem
from common.yaml_file import file_text, parsed_yaml
from workloads.job.parameters import DEEPSPEED_DEFAULTS, DEFAULTS, KINDS, MEANINGS, WorkloadArgs

if TYPE_CHECKING:
    from pydantic import BaseModel

PRESET = "model_size"
"""The key of a ready-made model, whose values the others stand above."""
_FLAG = "--job"
_SHOWN = 80  # characters of a value


def field_type(name: str) -> Any:
    """The type of a parameter: the literals of its choices, if it has any."""
    choices = MEANINGS[name].choices
    return Literal[choices] if choices else KINDS[name]


def model(kind: str, base: "type[BaseModel]", names: Iterable[str], doc: str, module: str) -> "type[BaseModel]":
    """A pydantic model of parameters; each may be None, which says nothing."""
    from pydantic import Field, create_model

    fields: dict[str, Any] = {}
    for name in names:
        default = getattr(DEFAULTS, name)
        usual = "" if default is None else f"; AICB's default: {default}"
        fields[name] = (field_type(name) | None, Field(None, description=f"{MEANINGS[name].help}{usual}"))
    return create_model(kind, __base__=base, __module__=module, __doc__=doc, **fields)


def read(path: Path, kinds: Mapping[str, Callable[[str], object]]) -> dict[str, Any]:
    """The parameters of a job in a file, by name. kinds: how a text is read where a number is expected, as in 1e9.

    Raises:
        InputProblems: it cannot be read, or keys or values are wrong; all of them.
    """
    text = file_text(path, _FLAG)
    document = _parsed_json(path, text) if path.suffix == ".json" else parsed_yaml(text, path, f"{_FLAG} {path}")
    if not isinstance(document, dict):
        raise input_problem(str(path), None, "does not map parameters to values, such as world_size: 32")
    mistakes = MistakeList()
    values: dict[str, Any] = {}
    for key, value in document.items():
        name = _name(key)
        if name is None:
            near = get_close_matches(str(key), [*_SPELLINGS, *KINDS, PRESET], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            mistakes.add(str(path), key, f"is no parameter of a job{hint}")
        elif name in values:
            mistakes.add(str(path), key, f"is there twice, as {name}, too")
        else:
            values[name] = _number(value, name, kinds)
    _check(path, values, mistakes)
    mistakes.check()
    return values


def text_of(args: WorkloadArgs, *, as_json: bool) -> str:
    """The file of a job: what differs from the defaults."""
    own = DEEPSPEED_DEFAULTS if args.frame == "DeepSpeed" else {}
    said = {name: value for name, value in args.to_dict().items() if name in own or value != getattr(DEFAULTS, name)}
    said = {"frame": args.frame, "world_size": args.world_size, **said}
    if as_json:
        return json.dumps(said, indent=2) + "\n"
    # JSON's escapes of what is beyond 16 bits are no YAML; Unicode's line ends, which YAML folds, are not printable.
    lines = [f"{name}: {json.dumps(value, ensure_ascii=False)}" for name, value in said.items()]
    return "".join(
        "".join(each if each.isprintable() else f"\\U{ord(each):08X}" for each in line) + "\n" for line in lines
    )


_SPELLINGS = {alias.removeprefix("--"): name for name, each in MEANINGS.items() for alias in each.aliases}


def _name(key: object) -> str | None:
    """The parameter that a key names, also by its short option, as tp."""
    if not isinstance(key, str):
        return None
    plain = key.replace("-", "_")
    return plain if plain in KINDS or plain == PRESET else _SPELLINGS.get(plain)


def _number(value: object, name: str, kinds: Mapping[str, Callable[[str], object]]) -> object:
    """A value; one that is written as a text where a number or a truth value belongs is read as an option's."""
    if isinstance(value, str) and KINDS.get(name, str) not in (str, str | None):
        try:
            return kinds[name](value)
        except Exception:  # noqa: BLE001 - the model says what is wrong
            return value
    return str(value) if name == PRESET and isinstance(value, int) else value


def _check(path: Path, values: Mapping[str, object], mistakes: MistakeList) -> None:
    from pydantic import ConfigDict, ValidationError, create_model

    fields: dict[str, Any] = {name: (str if name == PRESET else field_type(name), ...) for name in values}
    try:
        create_model("Job", __config__=ConfigDict(strict=True, arbitrary_types_allowed=False), **fields)(**values)
    except ValidationError as error:
        for each in error.errors():
            allowed = each["msg"][:1].lower() + each["msg"][1:]
            mistakes.add(f"{path}: {each['loc'][0]}", f"is {str(each['input'])[:_SHOWN]!r}", allowed)


def _parsed_json(path: Path, text: str) -> object:
    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        twice = next((key for key, count in Counter(key for key, _ in pairs).items() if count > 1), None)
        if twice is not None:
            raise input_problem(str(path), twice, "is there more than once")
        return dict(pairs)

    try:
        found: object = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError) as error:
        raise input_problem(str(path), None, f"is no JSON: {error}") from None
    return found
