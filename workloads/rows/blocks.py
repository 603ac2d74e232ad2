"""Stores a sequence of rows as distinct rows and repetitions instead of copies.

A training step is a few distinct rows repeated over layers, micro-batches and iterations. A `Block` keeps each distinct
row once and the repetition as a number, so the cost of building, counting and rendering depends on the distinct rows.
Rows of one layer or micro-batch are those of the next but for its number: a block may advance such numbers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

Row = TypeVar("Row")
OtherRow = TypeVar("OtherRow")
Offset = tuple[int, int]
"""Added to the numbers of layer and micro-batch in each repetition."""
NOTHING: Offset = (0, 0)


class Block(Generic[Row]):
    """Immutable: `parts` (rows and blocks) in order, the whole `repeat` times.

    advance: what each repetition adds to the numbers of its rows, which then have a method `shifted(Offset)`.
    """

    __slots__ = ("_length", "advance", "parts", "repeat")

    def __init__(self, parts: "Iterable[Row | Block[Row]]" = (), repeat: int = 1, advance: Offset = NOTHING) -> None:
        if repeat < 0:
            raise ValueError(f"a block cannot be repeated {repeat} times")
        self.parts: tuple[Row | Block[Row], ...] = tuple(
            part for part in parts if not (isinstance(part, Block) and len(part) == 0)
        )
        self.repeat = repeat
        self.advance = advance
        once = sum(len(part) if isinstance(part, Block) else 1 for part in self.parts)
        self._length = once * repeat

    def __len__(self) -> int:
        """Number of rows, repetitions included."""
        return self._length

    def __iter__(self) -> Iterator[Row]:
        for row, offset in self.placed():
            yield row if offset == NOTHING else _shifted(row, offset)

    def is_like(self, other: "Block[Row]") -> bool:
        """Whether the other has the same rows in the same structure, in time proportional to stored rows."""
        mine, its = (self.repeat, self.advance, len(self.parts)), (other.repeat, other.advance, len(other.parts))
        return mine == its and all(
            one is two or (one.is_like(two) if isinstance(one, Block) and isinstance(two, Block) else one == two)
            for one, two in zip(self.parts, other.parts, strict=True)
        )

    def placed(self, offset: Offset = NOTHING) -> "Iterator[tuple[Row, Offset]]":
        """Each row as it is stored, with what its place adds to its numbers: much faster than the rows themselves."""
        for number in range(self.repeat):
            shift = _moved(offset, self.advance, number)
            for part in self.parts:
                if isinstance(part, Block):
                    yield from part.placed(shift)
                else:
                    yield part, shift

    def shifted(self, offset: Offset) -> "Block[Row]":
        """The same structure with `offset` added to the numbers of each row."""
        return self if offset == NOTHING else self.map(lambda row: _shifted(row, offset))

    def repetitions(self, start: int, stop: int) -> "Block[Row]":
        """The rows of the repetitions start <= n < stop, as far as there are such."""
        first = max(start, 0)
        kept = Block(self.parts, max(0, min(stop, self.repeat) - first), self.advance)
        return kept.shifted(_moved(NOTHING, self.advance, first))

    def times(self, repeat: int) -> "Block[Row]":
        """This block repeated `repeat` times."""
        return self if repeat == 1 else Block((self,), repeat)

    def tally(self) -> "Counter[Row]":
        """How often each distinct (hashable) row occurs, in time proportional to the rows that differ."""
        counts: Counter[Row] = Counter()
        self._count(1, NOTHING, counts, distinct=True)
        return counts

    def tally_kinds(self) -> "Counter[Row]":
        """As `tally`, rows that differ by an advance counted as the first, in time proportional to stored rows."""
        counts: Counter[Row] = Counter()
        self._count(1, NOTHING, counts, distinct=False)
        return counts

    def _count(self, weight: int, offset: Offset, into: "Counter[Row]", *, distinct: bool) -> None:
        turns = self.repeat if distinct and self.advance != NOTHING else min(1, self.repeat)
        inner = weight if turns == self.repeat else weight * self.repeat
        for number in range(turns):
            shift = _moved(offset, self.advance, number)
            for part in self.parts:
                if isinstance(part, Block):
                    part._count(inner, shift, into, distinct=distinct)
                else:
                    into[part if shift == NOTHING else _shifted(part, shift)] += inner

    def map(self, convert: "Callable[[Row], OtherRow | None]", *, advance: bool = True) -> "Block[OtherRow]":
        """The same structure with each stored row converted, or removed where `convert` returns None.

        advance: whether repetitions advance the converted rows as they do these; without, they are the first's.
        """
        parts: list[OtherRow | Block[OtherRow]] = []
        for part in self.parts:
            converted = part.map(convert, advance=advance) if isinstance(part, Block) else convert(part)
            if converted is not None:
                parts.append(converted)
        return Block(parts, self.repeat, self.advance if advance else NOTHING)

    def count_where(self, predicate: Callable[[Row], bool]) -> int:
        """Number of rows for which `predicate` holds, repetitions included; an advance does not change its answer."""
        once = sum(
            part.count_where(predicate) if isinstance(part, Block) else int(predicate(part)) for part in self.parts
        )
        return once * self.repeat

    def encoded_size(self, encode: Callable[[Row], bytes]) -> int:
        """Number of bytes that `chunks` with the same `encode` yields. No block may advance its rows."""
        once = sum(part.encoded_size(encode) if isinstance(part, Block) else len(encode(part)) for part in self.parts)
        return once * self.repeat

    def chunks(self, encode: Callable[[Row], bytes], limit: int = 1 << 20) -> Iterator[bytes]:
        """The rows as bytes in pieces of about `limit` bytes, so memory stays constant. No block may advance rows."""
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


def _moved(offset: Offset, advance: Offset, times: int) -> Offset:
    if advance == NOTHING or not times:
        return offset
    return offset[0] + advance[0] * times, offset[1] + advance[1] * times


def _shifted(row: Any, offset: Offset) -> Any:
    return row.shifted(offset)
