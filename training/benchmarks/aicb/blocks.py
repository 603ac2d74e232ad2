"""Stores a sequence of rows as distinct rows and repetitions instead of copies.

A training step is a few distinct rows repeated over layers, micro-batches and iterations. A `Block` keeps each distinct
row once and the repetition as a number, so the cost of building, counting and rendering depends on the distinct rows.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

Row = TypeVar("Row")
OtherRow = TypeVar("OtherRow")


class Block(Generic[Row]):
    """Immutable: `parts` (rows and blocks) in order, the whole `repeat` times."""

    __slots__ = ("_length", "parts", "repeat")

    def __init__(self, parts: "Iterable[Row | Block[Row]]" = (), repeat: int = 1) -> None:
        if repeat < 0:
            raise ValueError(f"a block cannot be repeated {repeat} times")
        self.parts: tuple[Row | Block[Row], ...] = tuple(
            part for part in parts if not (isinstance(part, Block) and len(part) == 0)
        )
        self.repeat = repeat
        once = sum(len(part) if isinstance(part, Block) else 1 for part in self.parts)
        self._length = once * repeat

    def __len__(self) -> int:
        """Number of rows, repetitions included."""
        return self._length

    def __iter__(self) -> Iterator[Row]:
        for _ in range(self.repeat):
            for part in self.parts:
                if isinstance(part, Block):
                    yield from part
                else:
                    yield part

    def times(self, repeat: int) -> "Block[Row]":
        """This block repeated `repeat` times."""
        return self if repeat == 1 else Block((self,), repeat)

    def tally(self, weight: int = 1, into: "Counter[Row] | None" = None) -> "Counter[Row]":
        """Number of occurrences of each distinct row, in time proportional to the stored rows. Rows must be
        hashable.
        """
        counts: Counter[Row] = Counter() if into is None else into
        inner = weight * self.repeat
        for part in self.parts if inner else ():
            if isinstance(part, Block):
                part.tally(inner, counts)
            else:
                counts[part] += inner
        return counts

    def map(self, convert: "Callable[[Row], OtherRow | None]") -> "Block[OtherRow]":
        """The same structure with each stored row converted, or removed where `convert` returns None."""
        parts: list[OtherRow | Block[OtherRow]] = []
        for part in self.parts:
            converted = part.map(convert) if isinstance(part, Block) else convert(part)
            if converted is not None:
                parts.append(converted)
        return Block(parts, self.repeat)

    def count_where(self, predicate: Callable[[Row], bool]) -> int:
        """Number of rows for which `predicate` holds, repetitions included."""
        once = sum(
            part.count_where(predicate) if isinstance(part, Block) else int(predicate(part)) for part in self.parts
        )
        return once * self.repeat

    def encoded_size(self, encode: Callable[[Row], bytes]) -> int:
        """Number of bytes that `chunks` with the same `encode` yields."""
        once = sum(part.encoded_size(encode) if isinstance(part, Block) else len(encode(part)) for part in self.parts)
        return once * self.repeat

    def chunks(self, encode: Callable[[Row], bytes], limit: int = 1 << 20) -> Iterator[bytes]:
        """The rows as bytes, joined into pieces of about `limit` bytes at most, so that memory stays constant."""
        yield from _Renderer(encode, limit).chunks(self)


class _Renderer(Generic[Row]):
    """Turns a block into bytes: a block that fits in `limit` is one piece, repeated pieces are multiplied."""

    def __init__(self, encode: Callable[[Row], bytes], limit: int) -> None:
        self.encode = encode
        self.limit = limit
        self.sizes: dict[int, int] = {}

    def chunks(self, block: Block[Row]) -> Iterator[bytes]:
        pending: list[bytes] = []
        held = 0
        for piece in self.pieces(block):
            if held + len(piece) > self.limit and pending:
                yield b"".join(pending)
                pending, held = [], 0
            pending.append(piece)
            held += len(piece)
        if pending:
            yield b"".join(pending)

    def pieces(self, block: Block[Row]) -> Iterator[bytes]:
        once = self.size_once(block)
        if once <= self.limit:
            text = self.text_once(block)
            per_piece = max(1, self.limit // max(once, 1))
            whole, rest = divmod(block.repeat, per_piece)
            if whole:
                large = text * per_piece
                for _ in range(whole):
                    yield large
            if rest:
                yield text * rest
            return
        for _ in range(block.repeat):
            for part in block.parts:
                if isinstance(part, Block):
                    yield from self.pieces(part)
                else:
                    yield self.encode(part)

    def size_once(self, block: Block[Row]) -> int:
        known = self.sizes.get(id(block))
        if known is None:
            known = sum(
                self.size_once(part) * part.repeat if isinstance(part, Block) else len(self.encode(part))
                for part in block.parts
            )
            self.sizes[id(block)] = known
        return known

    def text_once(self, block: Block[Row]) -> bytes:
        return b"".join(
            self.text_once(part) * part.repeat if isinstance(part, Block) else self.encode(part) for part in block.parts
        )
