"""The grammar of SimAI's workload text: two lines of header, then a row a layer with its three phases.

By default a text is read strictly. `lenient` is as SimAI itself reads: numbers as a float takes them (1e3), any word as
a collective, blank lines skipped, rows beyond the number in line 2 left, keys of the header missing or said twice.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from workloads.rows.collectives import CALLS, SIMULATED, capitals

POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
MICRO = "MICRO"
TP_KEY = "model_parallel_NPU_group"
NEWER_KEYS = {"ep": 1, "pp": 1, "vpp": 1, "ga": 1}
_IGNORED = ("checkpoints", "checkpoint_initiates", "mode")
KEYS = (TP_KEY, *NEWER_KEYS, "all_gpus", "pp_comm", *_IGNORED)
SIZE_LIMIT = 1 << 31  # of a parallel size, and of pp_comm in bytes
_DIGITS = 18

NONE = "NONE"
NOTHING = (NONE, "None")  # AICB writes the second, too
ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, BROADCAST = COLLECTIVES = tuple(map(capitals, SIMULATED))
KNOWN = dict(zip(SIMULATED[:-1], COLLECTIVES[:-1], strict=True))
"""SimAI's words for collectives, by the names of their calls."""
WORDS = {call: capitals(name) for call, name in CALLS.items() if name in SIMULATED}
"""And those of other calls, and of a broadcast."""
TP, EP, DP, DP_EP = "TP", "EP", "DP", "DP_EP"
ALL, EP_TP, EMBEDDING, PP = "ALL", "EP_TP", "EMBEDDING", "PP"
SUFFIXES = (DP_EP, EP_TP, EP, TP, DP, ALL, EMBEDDING, PP)  # the longer first
SIMAI_SUFFIXES = (DP_EP, EP)
# The last seven are groups of real frameworks; one that is none of these counts as all GPUs.
GROUP = {
    "tp_group": TP, "dp_group": DP, "ep_group": EP, "ep_dp_group": DP_EP, "ep_tp_group": EP_TP, "pp_group": PP,
    "embedding_group": EMBEDDING, "all": ALL,
    "dp_cp_group": DP, "dp_shard_group": DP, "expert_dp_group": DP_EP, "tp_cp_group": TP, "expert_tp_group": TP,
    "tp_ep_group": EP_TP, "position_embedding_group": EMBEDDING,
}  # fmt: skip
PHASES = ("forward", "input gradient", "weight gradient")
FIELDS = 12
FIRST_ROW_LINE = 3
LARGEST = 1 << 63
EMBEDDING_LAYER = b"embedding_layer"  # the one layer that a pipeline stage does not repeat for each micro-batch
_PHASE_AT = (2, 5, 8)
_WHOLE, _DECIMAL = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_KNOWN = frozenset(
    {name + suffix for name in COLLECTIVES for suffix in ("", *(f"_{each}" for each in SUFFIXES))} | {*NOTHING}
)
BEGINNING = 256  # bytes in which a file says what it is
_PLAIN = bytes(range(32, 127)) + b"\t\r\n"


class WorkloadHeader(NamedTuple):
    """How a workload is divided. vpp: chunks a stage, as the file says; ga: micro-batches; pp_comm: bytes a transfer.

    all_gpus is 0 where the file does not say it. rows: what line 2 says. notes: what was missing and assumed. old: of
    before expert and pipeline parallelism.
    """

    tp: int
    ep: int
    pp: int
    vpp: int
    ga: int
    all_gpus: int
    pp_comm: int
    rows: int
    old: bool
    notes: tuple[str, ...] = ()


class Phase(NamedTuple):
    """One phase: compute time in ns, collective (NONE where nothing is sent), bytes, and its group, "" for the text's
    own: DP of a weight gradient, else TP.
    """

    compute_ns: int = 1
    collective: str = NONE
    size: int = 0
    group: str = ""

    @property
    def comm(self) -> str:
        """Collective and group as a cell has them, such as ALLREDUCE_DP_EP."""
        return f"{self.collective}_{self.group}" if self.group else self.collective


IDLE = Phase()


class Row(NamedTuple):
    """The three phases of a layer as they are simulated, each with its group."""

    forward: Phase
    input_gradient: Phase
    weight_gradient: Phase


class WorkItem(NamedTuple):
    """One row as it is written; process_ns is read by SimAI and not used."""

    name: str
    forward: Phase = IDLE
    input_gradient: Phase = IDLE
    weight_gradient: Phase = IDLE
    process_ns: int = 100

    def to_text(self) -> str:
        phases = (f"{phase.compute_ns}\t{phase.comm}\t{phase.size}" for phase in self[1:4])
        return "\t".join([self.name, "-1", *phases, str(self.process_ns)])

    @classmethod
    def from_text(cls, line: str) -> "WorkItem":
        """Parses a row.

        Raises:
            ValueError: the text is malformed; the message says where.
        """
        name, rest = split_row(line.encode())
        if not name:
            raise ValueError(f"is blank where {FIELDS} fields belong")
        item = row_cells(rest)
        if not name.decode().isprintable():
            raise ValueError(f"name is {name.decode()[:80]!r}, not printable text")
        return item._replace(name=name.decode())


def begins_simai(text: str) -> bool:
    """Whether a text begins as a SimAI text does."""
    return text.split(maxsplit=1)[:1] in ([POLICY], [MICRO])


def parse_header(first: str, second: str, *, lenient: bool = False) -> WorkloadHeader:
    """The header of a workload, of this or an older form.

    Raises:
        ValueError: a key is missing, unknown or malformed; the message names all of them, one a line.
    """
    rows, problems = _rows(second)
    notes: tuple[str, ...]
    if first.split() == [MICRO]:
        note = f"the header is the old {MICRO}: tp, ep, pp, vpp and ga are taken as 1"
        numbers, old, notes = {TP_KEY: 1, **NEWER_KEYS}, lenient, (note,)
    else:
        try:
            numbers = {key: int(number) for key, number in header_numbers(first, lenient=lenient).items()}
        except ValueError as error:
            problems = [f"line 1: {each}" for each in str(error).split("\n")] + problems
            numbers = {}
        missing = [key for key in NEWER_KEYS if key not in numbers]
        old = bool(missing)
        notes = (f"the header is old: it lacks {', '.join(missing)}, taken as 1",) if missing else ()
    if problems:
        raise ValueError("\n".join(problems))
    tp, ep, pp, vpp, ga = (numbers.get(key, 1) for key in (TP_KEY, *NEWER_KEYS))
    return WorkloadHeader(
        tp, ep, pp, vpp, ga, numbers.get("all_gpus", 0), numbers.get("pp_comm", 0), rows, old, notes
    )  # fmt: skip


def header_numbers(line: str, *, lenient: bool = False) -> dict[str, int | float]:
    """The numbers of a first line that is not MICRO, by key; a key may have a colon. pp_comm: bytes, a float too.

    Raises:
        ValueError: a key is missing, unknown or malformed; the message names all of them, one a line.
    """
    words = line.replace(":", " ").split()
    if not words or words[0] != POLICY:
        raise ValueError(f"does not begin with {POLICY} or {MICRO}")
    numbers, problems = _pairs(words[1:], lenient)
    if TP_KEY not in numbers and not problems:
        problems.append(f"lacks {TP_KEY}")
    missing = [key for key in NEWER_KEYS if key not in numbers]
    if missing and not lenient and len(missing) < len(NEWER_KEYS):
        problems.append(f"lacks {', '.join(missing)}")
    problems += _out_of_range(numbers)
    if problems:
        raise ValueError("\n".join(problems))
    return numbers


def _out_of_range(numbers: dict[str, int | float]) -> list[str]:
    wrong = {key: numbers[key] for key in (TP_KEY, *NEWER_KEYS) if key in numbers and not 0 < numbers[key] < SIZE_LIMIT}
    problems = [f"{key} is {number:.6g}, allowed is 1 to 2^31 - 1" for key, number in wrong.items()]
    for key, unit in (("pp_comm", " bytes"), ("all_gpus", "")):
        if not 0 <= numbers.get(key, 0) < SIZE_LIMIT:
            problems.append(f"{key} is {numbers[key]}, allowed is 0 to {SIZE_LIMIT - 1}{unit}")
    return problems


def _pairs(words: list[str], lenient: bool) -> tuple[dict[str, int | float], list[str]]:
    numbers: dict[str, int | float] = {}
    problems = []
    position = 0
    while position < len(words):
        key, text = words[position], words[position + 1] if position + 1 < len(words) else ""
        position += 2
        if key not in KEYS:
            problems.append(f"{key[:40]} is unknown; there is {', '.join(KEYS)}")
            position -= 1 if text in KEYS else 0
            continue
        if key in numbers and not lenient:
            problems.append(f"{key} is said twice")
        try:
            numbers[key] = _header_number(key, text, lenient)
        except (ValueError, OverflowError):
            problems.append(f"{key} is {text[:40]!r}, not a whole number")
    return numbers, problems


def _header_number(key: str, text: str, lenient: bool) -> int | float:
    if "." in text or "e" in text.lower():
        if not lenient and not (key == "pp_comm" and _DECIMAL.fullmatch(text)):
            raise ValueError(text)
        return int(float(text)) if lenient else float(text)
    if not lenient and not text.lstrip("-").isdecimal():
        raise ValueError(text)
    return int(text[: _DIGITS + 1])


def _rows(line: str) -> tuple[int, list[str]]:
    text = line.strip()
    if text.isascii() and text.isdecimal() and len(text) <= _DIGITS:
        return int(text), []
    return 0, [f"line 2: {text[:40]!r} is not the number of rows"]


def split_row(line: bytes) -> list[bytes]:
    """The layer's name and the rest of the line, which is empty where there is but a name."""
    parts = line.split(None, 1) or [b""]
    return parts if len(parts) > 1 else [*parts, b""]


def wrong_name(lines: Iterable[bytes]) -> tuple[int, str] | None:
    """The place (from 0) of the first row whose name is no printable UTF-8, and the name as Python writes it."""
    if not b"".join(lines).translate(None, _PLAIN):
        return None
    for at, line in enumerate(lines):
        name = split_row(line)[0]
        try:
            printable = name.decode().isprintable()
        except UnicodeDecodeError:
            printable = False
        if not printable:
            return at, repr(name.decode("utf-8", "backslashreplace")[:80])
    return None


@lru_cache(1024)
def row_cells(rest: bytes, suffixes: tuple[str, ...] = SUFFIXES, *, lenient: bool = False) -> WorkItem:
    """A row without its name, read from all other cells; the groups are those of `suffixes`.

    Raises:
        ValueError: a cell is wrong; the message says which and what is allowed.
    """
    cells = rest.decode("ascii", "replace").split()
    if len(cells) != FIELDS - 1:
        raise ValueError(f"{len(cells) + 1} fields where {FIELDS} are expected")
    phases: list[Phase] = []
    for at, name in zip(_PHASE_AT, PHASES, strict=True):
        compute = _count(cells[at - 1], f"the {name} compute time in ns", lenient)
        size = _count(cells[at + 1], f"the bytes of the {name} phase", lenient)
        if not lenient and cells[at] not in _KNOWN:
            allowed = f"{', '.join(COLLECTIVES)} with or without _{', _'.join(SUFFIXES)}"
            raise ValueError(f"{cells[at][:80]!r} is none of {allowed}, or {NONE}")
        collective, group = _collective(cells[at], suffixes)
        phases.append(Phase(compute, collective, size, group))
    process_ns = 0 if lenient and not _DECIMAL.fullmatch(cells[-1]) else _count(cells[-1], "process time", lenient)
    forward, input_gradient, weight_gradient = phases
    return WorkItem("", forward, input_gradient, weight_gradient, process_ns)


def parse_row(rest: bytes, suffixes: tuple[str, ...] = SUFFIXES, *, lenient: bool = False) -> Row:
    """The phases of a row, from all its cells but the name.

    Raises:
        ValueError: a cell is wrong; the message says which and what is allowed.
    """
    return row_of(row_cells(rest, suffixes, lenient=lenient))


def row_of(item: WorkItem) -> Row:
    """The phases with their groups: TP, and DP of a weight gradient, where the text names none."""
    return Row(*(
        Phase(phase.compute_ns, NONE if phase.comm in NOTHING else phase.collective, phase.size, phase.group or plain)
        for phase, plain in zip(item[1:4], (TP, TP, DP), strict=True)
    ))  # fmt: skip


@lru_cache(1024)
def _collective(text: str, suffixes: tuple[str, ...]) -> tuple[str, str]:
    """Collective and group of a cell such as ALLREDUCE_DP_EP; the group is empty where the cell names none."""
    for suffix in suffixes:
        if text.endswith(f"_{suffix}"):
            return text.removesuffix(f"_{suffix}"), suffix
    return text, ""


def _count(text: str, what: str, lenient: bool) -> int:
    try:
        number = int(text) if text.lstrip("-").isdecimal() else int(float(text))
    except (ValueError, OverflowError):
        raise ValueError(f"{what} is {text[:40]!r}, not a whole number") from None
    if not 0 <= number < LARGEST:
        raise ValueError(f"{what} is {text[:40]}, allowed is 0 to 2^63 - 1")
    if not lenient and not _WHOLE.fullmatch(text):
        raise ValueError(f"{what} is {text[:40]!r}, not a whole number in at most {_DIGITS} digits")
    return number
