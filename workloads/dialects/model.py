"""The base classes of a model: parameters with a shape, and modules that hold them.

A model defines its parameters and the order of their use; a trainer (`frame`) defines the communication. A model for
DeepSpeed is complete with that. For Megatron, whose layers communicate, a module has `forward` and `backward`, too.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from math import prod
from types import FunctionType, MethodType, ModuleType

from workloads.job.parameters import ELEMENT_BYTES
from workloads.rows.blocks import Block
from workloads.rows.ops import LogItem

DEEPEST = 50
"""Lists within one another that a model may have; more is a list that holds itself."""
MOST_HIDDEN, MOST_ITEMS = 3, 10_000
"""How deep, and in collections of how many items, a parameter is looked for where none may be."""
_PLAIN = (str, bytes, int, float, complex, type, ModuleType, FunctionType, MethodType, Enum)


class MockedParam:
    """One parameter of one rank: a shape in elements, no data."""

    __slots__ = ("elem_size", "name", "shape")

    def __init__(self, shape: Sequence[int], *, elem_size: int = ELEMENT_BYTES, name: str = "") -> None:
        """`shape` is in elements for each dimension, at least one.

        Raises:
            ValueError: the shape is empty or has a negative dimension.
        """
        if not shape or any(dimension < 0 for dimension in shape):
            raise ValueError(f"parameter {name!r} has shape {tuple(shape)}; each dimension must be 0 or more")
        self.shape = tuple(shape)
        self.elem_size = elem_size
        self.name = name

    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def msg_size(self) -> int:
        """Size in bytes."""
        return self.numel() * self.elem_size

    def __repr__(self) -> str:
        return f"MockedParam({self.name!r}, {self.shape})"


class MockedModel:
    """A module: its attributes that are parameters or modules are its parts, in order of assignment.

    Lists, tuples and dicts of them are walked, within one another too.
    """

    name: str = ""

    def parts(self) -> "Iterator[MockedParam | MockedModel]":
        """Parameters and modules held directly, in the order in which they were assigned.

        Raises:
            TypeError: a parameter or module is in an object that is no list, tuple or dict; the attribute is named.
        """
        for name, value in vars(self).items():
            yield from _held(value, f"{type(self).__name__}.{name}")

    def child_modules(self) -> "list[MockedModel]":
        return [part for part in self.parts() if isinstance(part, MockedModel)]

    def parameters(self) -> list[MockedParam]:
        """All parameters, depth first, in the order in which the forward pass uses them."""
        found: list[MockedParam] = []
        for part in self.parts():
            if isinstance(part, MockedParam):
                found.append(part)
            else:
                found.extend(part.parameters())
        return found

    def numel(self) -> int:
        """Number of elements of all parameters."""
        return sum(part.numel() for part in self.parts())

    def forward(self) -> Block[LogItem]:
        """Rows of the forward pass of one micro-batch: the rows of the parts, in order."""
        return Block([child.forward() for child in self.child_modules()])

    def backward(self) -> Block[LogItem]:
        """Rows of the backward pass: the rows of the parts in reverse order."""
        return Block([child.backward() for child in reversed(self.child_modules())])


def _held(value: object, where: str, depth: int = 0) -> Iterator[MockedParam | MockedModel]:
    """The parts in an attribute's value; `where` is its name."""
    if isinstance(value, MockedParam | MockedModel):
        yield value
    elif isinstance(value, list | tuple | dict):
        if depth == DEEPEST:
            raise TypeError(f"{where} has more than {DEEPEST} lists within one another")
        for each in value.values() if isinstance(value, dict) else value:
            yield from _held(each, where, depth + 1)
    elif _hides_a_part(value):
        what = "can be read once alone" if isinstance(value, Iterator) else "holds parameters"
        raise TypeError(
            f"{where} is a {type(value).__name__} that {what}; allowed: a MockedParam, a MockedModel, and lists, "
            "tuples and dicts of them"
        )


def _hides_a_part(value: object, depth: int = 0) -> bool:
    """Whether an object holds a part in its attributes or items, within MOST_HIDDEN objects in one another.

    An iterator counts as one that does: it can be read once alone.
    """
    if isinstance(value, MockedParam | MockedModel | Iterator):
        return True
    if depth > MOST_HIDDEN or value is None or isinstance(value, _PLAIN):
        return False
    return any(_hides_a_part(each, depth + 1) for each in _inside(value))


def _inside(value: object) -> Iterator[object]:
    """The values of an object's attributes, and the items of a collection."""
    if isinstance(value, Collection) and len(value) <= MOST_ITEMS:
        yield from value.values() if isinstance(value, Mapping) else value
    yield from getattr(value, "__dict__", {}).values()
    for kind in type(value).__mro__:
        names = kind.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            yield getattr(value, name, None)


class Linear(MockedModel):
    """A weight of shape (in_features, out_features) that no rank shares."""

    def __init__(self, in_features: int, out_features: int, *, name: str = "") -> None:
        self.name = name
        self.in_features = in_features
        self.out_features = out_features
        self.weight = MockedParam((in_features, out_features), name=name)


class Stack(MockedModel):
    """The same layer `count` times, stored once."""

    def __init__(self, layer: MockedModel, count: int) -> None:
        self.layer = layer
        self.count = count

    def parameters(self) -> list[MockedParam]:
        return self.layer.parameters() * self.count

    def numel(self) -> int:
        return self.layer.numel() * self.count

    def forward(self) -> Block[LogItem]:
        return self.layer.forward().times(self.count)

    def backward(self) -> Block[LogItem]:
        return self.layer.backward().times(self.count)
