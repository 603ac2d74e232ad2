"""Computes every row of a workload once per kind of row, adds them up, and writes them in order, all as a stream."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple, cast

from common.errors import MistakeList
from common.progress import StepProgress
from simulation.analytical.times import BUCKETS, Model, RowTime, Totals
from simulation.analytical.workload import Cells, RowSource, SourceRow, name_and_cells
from workloads.formats.simai_text import EMBEDDING_LAYER

REMEMBERED = 30_000  # kinds of rows; further ones are computed each time
NUMBERED = 4096  # kinds of rows that get a number, by which the JSON explains them
MISTAKES_SHOWN = 20
NAME_SHOWN = 60  # bytes
_SUMS = (*BUCKETS, "computation", "passes", "forward_passes")


class Kind(NamedTuple):
    """All rows with the same cells but the name. number: from 1 in the order of appearance, 0 without one."""

    number: int
    first_row: int
    rest: Cells
    time: RowTime
    cells: bytes


class Evaluation:
    """The rows of a source, judged by a model. with_kinds: rows end with the number of their kind."""

    def __init__(self, model: Model, source: RowSource, *, with_kinds: bool) -> None:
        self._model, self._source, self._with_kinds = model, source, with_kinds
        self._kinds: dict[Cells, Kind] = {}
        self._mistakes = MistakeList()
        self._counts: Counter[Cells] = Counter()
        self._exact = dict.fromkeys(_SUMS, 0)
        self.rows = 0

    def kinds(self) -> Iterator[tuple[Kind, int]]:
        """The numbered kinds and how many rows each has."""
        for rest, kind in self._kinds.items():
            if kind.number:
                yield kind, self._counts[rest]

    def totals(self) -> Totals:
        """The sums over all rows, exact.

        Raises:
            InputProblems: rows are malformed.
        """
        with StepProgress("rows computed", self._source.header.rows) as progress:
            for block in self._source.blocks():
                self._count(block)
                self.rows += len(block)
                progress.advance(len(block))
        self._mistakes.check()
        exact = self._exact
        exposed = {bucket: exact[bucket] / 1000 for bucket in BUCKETS}
        total = sum(exact[bucket] for bucket in BUCKETS) / 1000
        return Totals(exposed, total, *(exact[name] / 1000 for name in ("computation", "passes", "forward_passes")))

    def totals_in_order(self) -> Totals:
        """The same sums as the original makes them: row by row in 64-bit floats, in us."""
        sums = dict.fromkeys((*_SUMS, "exposed_all"), 0.0)
        for block in self._source.blocks():
            terms = {line: self._terms(line) for line in set(block)}
            for name in sums:
                added = {line: term[name] for line, term in terms.items()}
                if any(map(any, added.values())):
                    sums[name] = _added(sums[name], chain.from_iterable(map(added.__getitem__, block)))
        others = (sums[name] for name in ("exposed_all", "computation", "passes", "forward_passes"))
        return Totals({bucket: sums[bucket] for bucket in BUCKETS}, *others)

    def lines(self) -> Iterator[bytes]:
        """The CSV's rows, in chunks."""
        cells = self._cells()
        with StepProgress("rows written", self.rows) as progress:
            for block in self._source.blocks():
                different = set(block)
                if 2 * len(different) <= len(block):
                    made = {line: self._line(line, cells) for line in different}
                    yield b"".join(map(made.__getitem__, block))
                else:
                    yield self._different_lines(block, cells)
                progress.advance(len(block))

    def row(self, number: int) -> tuple[bytes, Cells] | None:
        """Name and cells of a row by its number from 1; None beyond the last."""
        at = number - 1
        for block in self._source.blocks():
            if at < len(block):
                return name_and_cells(block[at])
            at -= len(block)
        return None

    def _different_lines(self, block: Sequence[SourceRow], cells: Callable[[Cells], bytes]) -> bytes:
        """The CSV lines of rows that differ, all at once where no name needs quotes, else by `_line`."""
        lines = cast(Sequence[bytes], block) if isinstance(block[0], bytes) else ()
        text = b"".join(lines) if self._with_kinds else b""
        if not lines or b"," in text or b'"' in text:
            return b"".join([self._line(line, cells) for line in block])
        return b"".join([b"%b,%b" % (name, cells(rest)) for name, rest in [line.split(None, 1) for line in lines]])

    def _line(self, line: SourceRow, cells: Callable[[Cells], bytes]) -> bytes:
        name, rest = name_and_cells(line)
        if self._with_kinds and (b"," in name or b'"' in name):
            name = b'"' + name.replace(b'"', b'""') + b'"'
        return name + b"," + cells(rest)

    def _count(self, block: Sequence[SourceRow]) -> None:
        firsts: dict[Cells, tuple[int, bytes]] = {}
        exact = self._exact
        for rest, (count, repeated) in _by_rest(block).items():
            kind = self._kinds.get(rest)
            if kind is None:
                firsts = firsts or _firsts(block)
                made = self._judged(rest, *firsts[rest])
                if made is None:
                    continue
                kind = made
            if kind.number:
                self._counts[rest] += count
            time = kind.time
            for phase in time[:3]:
                exact[phase.bucket] += phase.exposed * count
                exact["computation"] += phase.compute * count
            exact["passes"] += time.passes * repeated
            exact["forward_passes"] += time.forward_pass * repeated

    def _judged(self, rest: Cells, at: int, name: bytes) -> Kind | None:
        """A kind that was not known; nothing where the row is malformed, which is noted."""
        row = self.rows + at + 1
        try:
            kind = self._made(rest, row)
        except ValueError as error:
            if len(self._mistakes.mistakes) < MISTAKES_SHOWN:
                where = f"{self._source.place(row)}, {name[:NAME_SHOWN].decode('utf-8', 'replace')}"
                self._mistakes.add(where, None, str(error))
            return None
        if len(self._kinds) < REMEMBERED:
            self._kinds[rest] = kind
        return kind

    def _made(self, rest: Cells, row: int) -> Kind:
        time = self._model.row(rest)
        number = len(self._kinds) + 1 if len(self._kinds) < NUMBERED else 0
        last = f",{number or ''}" if self._with_kinds else ""
        return Kind(number, row, rest, time, f"{time.cells}{last}\n".encode())

    def _cells(self) -> Callable[[Cells], bytes]:
        known = {rest: kind.cells for rest, kind in self._kinds.items()}

        def cells(rest: Cells) -> bytes:
            return known.get(rest) or self._made(rest, 0).cells

        return cells

    def _terms(self, line: SourceRow) -> dict[str, tuple[float, ...]]:
        """The terms that a row adds to each sum, in us and in the order in which the original adds it."""
        name, rest = name_and_cells(line)
        kind = self._kinds.get(rest) or self._made(rest, 0)
        forward, gradient, weight = kind.time[:3]
        parts = [phase.exposed / 1000 for phase in (forward, weight, gradient)]
        terms: dict[str, tuple[float, ...]] = dict.fromkeys((*_SUMS, "exposed_all"), (0.0,))
        terms[forward.bucket] = (parts[0] + parts[2],)
        terms[weight.bucket] = (parts[1],)
        terms["exposed_all"] = tuple(parts)
        terms["computation"] = ((forward.compute + gradient.compute + weight.compute) / 1000,)
        if name != EMBEDDING_LAYER:
            terms["passes"] = (kind.time.passes / 1000,)
            terms["forward_passes"] = (kind.time.forward_pass / 1000,)
        return terms


def _added(start: float, terms: Iterable[float]) -> float:
    """The sum, term by term (from Python 3.12 on sum() is more exact than that)."""
    return deque(accumulate(terms, initial=start), maxlen=1)[0]


def _by_rest(block: Sequence[SourceRow]) -> dict[Cells, tuple[int, int]]:
    """How often each row's cells without the name occur, and how often in a layer that is repeated."""
    lines: Counter[SourceRow] = Counter(block)
    if 2 * len(lines) <= len(block):
        counts: dict[Cells, tuple[int, int]] = {}
        for line, count in lines.items():
            name, rest = name_and_cells(line)
            former, repeated = counts.get(rest, (0, 0))
            counts[rest] = former + count, repeated + count * (name != EMBEDDING_LAYER)
        return counts
    pairs: Sequence[Sequence[Any]]
    if isinstance(block[0], bytes):
        pairs = [line.split(None, 1) for line in cast(Sequence[bytes], block)]
    if not isinstance(block[0], bytes) or min(map(len, pairs)) < 2:
        pairs = list(map(name_and_cells, block))
    once = Counter([rest for name, rest in pairs if name == EMBEDDING_LAYER])
    return {rest: (count, count - once[rest]) for rest, count in Counter([rest for _, rest in pairs]).items()}


def _firsts(block: Sequence[SourceRow]) -> dict[Cells, tuple[int, bytes]]:
    """Where in the block each row's cells come first, and the layer's name there."""
    firsts: dict[Cells, tuple[int, bytes]] = {}
    for at, line in enumerate(block):
        name, rest = name_and_cells(line)
        firsts.setdefault(rest, (at, name))
    return firsts
