"""Reads and writes workload text for the SimAI simulator: a header line, the number of rows, a row per step of a layer.

Times are in ns, sizes in bytes. SimAI runs forward and input-gradient collectives without a suffix over the tensor
groups, weight-gradient ones over the data-parallel groups; `_EP` and `_DP_EP` name the expert groups. The other
suffixes are those of `python -m simulation analytical`, which costs them; SimAI takes such a row for free.
"""

import re
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from common.whole_files import encode_once, write_whole
from workloads.job.errors import WorkloadFileError, WorkloadNote
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block

NONE = "NONE"
COLLECTIVES = ("ALLREDUCE", "ALLGATHER", "REDUCESCATTER", "ALLTOALL", "BROADCAST", NONE)
GROUP_SUFFIXES = ("", "_EP", "_DP_EP", "_TP", "_DP", "_EP_TP", "_PP", "_EMBEDDING", "_ALL")
KNOWN = frozenset({name + suffix for name in COLLECTIVES for suffix in GROUP_SUFFIXES} | {"None"})
POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
MICRO = "MICRO"
_WHOLE, _DECIMAL = re.compile(r"[0-9]{1,18}"), re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_PHASES = ("forward", "input gradient", "weight gradient")
INFERENCE = 1
"""The header's `mode` of a forward pass alone, as AICB has it; a training step has none."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One third of a row: compute time in ns, collective (with its group suffix) and bytes."""

    compute: int = 1
    comm: str = NONE
    size: int = 0


@dataclass(frozen=True, slots=True)
class WorkItem:
    """One row: forward, input gradient and weight gradient; process_time is read by SimAI and not used."""

    name: str
    forward: Phase = Phase()
    input_gradient: Phase = Phase()
    weight_gradient: Phase = Phase()
    process_time: int = 100

    def to_text(self) -> str:
        phases = (self.forward, self.input_gradient, self.weight_gradient)
        cells = [str(cell) for phase in phases for cell in (phase.compute, phase.comm, phase.size)]
        return "\t".join([self.name, "-1", *cells, str(self.process_time)])

    @classmethod
    def from_text(cls, line: str) -> "WorkItem":
        """Parses a row.

        Raises:
            ValueError: the text is malformed; the message says where.
        """
        cells = line.split()
        if len(cells) != 12:
            raise ValueError(f"{len(cells)} fields where 12 are expected")
        try:
            forward, input_gradient, weight_gradient = (
                _phase(name, *cells[at : at + 3]) for at, name in zip((2, 5, 8), _PHASES, strict=True)
            )
            if not cells[0].isprintable():
                raise ValueError(f"name is {cells[0][:80]!r}, not printable text")
            return cls(cells[0], forward, input_gradient, weight_gradient, _whole(cells[11], "process time"))
        except ValueError as error:
            raise ValueError(f"not a row of a SimAI workload: {error}") from None


def _phase(name: str, compute: str, comm: str, size: str) -> Phase:
    return Phase(_whole(compute, f"{name} time"), _collective(comm), _whole(size, f"{name} size"))


def _whole(text: str, what: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{what} is {text[:80]!r}, not a whole number of 0 or more")
    return int(text)


def _collective(text: str) -> str:
    if text not in KNOWN:
        suffixes = ", ".join(GROUP_SUFFIXES[1:])
        raise ValueError(f"{text[:80]!r} is none of {', '.join(COLLECTIVES)} with or without {suffixes}")
    return text


@dataclass(frozen=True, slots=True)
class SimaiHeader:
    """The first line. vpp: virtual stages of a stage, in AICB its layers; pp_comm: bytes, in AICB sometimes a float.

    A text of before AICB had expert and pipeline parallelism says tp alone: the others are None.
    """

    tp: int
    ep: int | None
    pp: int | None
    vpp: int | None
    ga: int | None
    all_gpus: int | None
    pp_comm: int | float | None = 0
    mode: int | None = None

    def to_text(self) -> str:
        if self.pp is None:
            return f"{POLICY} model_parallel_NPU_group: {self.tp} checkpoints: 0 checkpoint_initiates: 0"
        if self.mode is not None:
            return (
                f"{POLICY} model_parallel_NPU_group: {self.tp} ep: {self.ep} pp: {self.pp} all_gpus: {self.all_gpus} "
                f"mode: {self.mode} vpp: {self.vpp} ga: {self.ga} checkpoints: 0 checkpoint_initiates: 0 "
                f"pp_comm: {self.pp_comm}"
            )
        return (
            f"{POLICY} model_parallel_NPU_group: {self.tp} ep: {self.ep} pp: {self.pp} vpp: {self.vpp} ga: {self.ga} "
            f"all_gpus: {self.all_gpus} checkpoints: 0 checkpoint_initiates: 0 pp_comm: {self.pp_comm}"
        )

    @classmethod
    def from_text(cls, line: str) -> "SimaiHeader":
        """Parses the first line.

        Raises:
            ValueError: a key is missing or malformed; the message names it.
        """
        words = line.split()
        if not words or words[0] != POLICY:
            raise ValueError(f"does not begin with {POLICY} or {MICRO}")
        pairs = dict(zip(words[1::2], words[2::2], strict=False))
        keys = ("model_parallel_NPU_group:", "ep:", "pp:", "vpp:", "ga:", "all_gpus:")
        missing = [key for key in (*keys, "pp_comm:") if key not in pairs]
        if missing == [*keys[1:], "pp_comm:"]:
            return cls(_whole(pairs[keys[0]], keys[0]), None, None, None, None, None, None)
        if missing:
            raise ValueError(f"lacks {', '.join(missing)}")
        pp_comm = pairs["pp_comm:"]
        if not _DECIMAL.fullmatch(pp_comm):
            raise ValueError(f"pp_comm: is {pp_comm[:80]!r}, not a number of bytes from 0 on")
        tp, ep, pp, vpp, ga, all_gpus = (_whole(pairs[key], key) for key in keys)
        mode = _whole(pairs["mode:"], "mode:") if "mode:" in pairs else None
        return cls(tp, ep, pp, vpp, ga, all_gpus, float(pp_comm) if "." in pp_comm else int(pp_comm), mode)


def is_simai(path: Path) -> bool:
    """Whether a file begins as a SimAI text does, whatever its name is.

    Raises:
        WorkloadFileError: it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            return begins_simai(file.read(len(POLICY) + 1).decode("ascii", errors="replace"))
    except OSError as error:
        raise WorkloadFileError(path, None, error.strerror or str(error)) from None


def begins_simai(line: str) -> bool:
    """Whether a line begins as the first of a SimAI text does."""
    return line.split(maxsplit=1)[:1] in ([POLICY], [MICRO])


class SimaiWorkload:
    """Rows for SimAI. header None means the MICRO policy: single collectives, no model."""

    def __init__(self, header: SimaiHeader | None, rows: Block[WorkItem], args: WorkloadArgs | None = None) -> None:
        self.header = header
        self.rows = rows
        self.args = args

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[WorkItem]:
        return iter(self.rows)

    def tally(self) -> Counter[WorkItem]:
        return self.rows.tally()

    def save(self, path: Path | str) -> int:
        """Write the text, replacing `path`. Returns its size in bytes."""
        encode = encode_once(WorkItem.to_text)
        first = MICRO if self.header is None else self.header.to_text()
        head = f"{first}\n{len(self)}\n".encode()
        size = len(head) + self.rows.encoded_size(encode)

        def chunks() -> Iterator[bytes]:
            yield head
            yield from self.rows.chunks(encode)

        write_whole(Path(path), chunks(), size=size)
        return size

    @classmethod
    def load(cls, path: Path | str) -> "SimaiWorkload":
        """Reads a SimAI workload.

        Raises:
            WorkloadFileError: the file is malformed, or its row count differs from line 2 (noted only in old texts).
        """
        path = Path(path)
        try:
            first, count, *rest = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise WorkloadFileError(path, None, str(error)) from None
        except ValueError:
            raise WorkloadFileError(path, None, "has fewer than two lines") from None
        try:
            header = None if first.strip() == MICRO else SimaiHeader.from_text(first)
        except ValueError as error:
            said = "; it is a CSV, which Workload.load reads" if first.startswith("comm_type,") else ""
            raise WorkloadFileError(path, 1, f"{error}{said}") from None
        if header is not None and header.pp is None:
            said = "its header is of before ep, pp, vpp, ga, all_gpus and pp_comm: they are None"
            warnings.warn(WorkloadNote(f"{path}: {said}"), stacklevel=2)
        parse = cache(WorkItem.from_text)
        rows = []
        for number, line in enumerate(rest, start=3):
            try:
                rows.append(parse(line))
            except ValueError as error:
                raise WorkloadFileError(path, number, str(error)) from None
        if count.strip() != str(len(rows)):
            said = f"says {count.strip()!r} rows, but {len(rows)} follow"
            if header is None or header.pp is not None:
                raise WorkloadFileError(path, 2, said)
            # AICB ships a text of that form with another number: the rows that are there are what it has.
            warnings.warn(WorkloadNote(f"{path}, line 2: {said}; these are taken"), stacklevel=2)
        return cls(header, Block(rows))
