"""Reads and writes workload text for the SimAI simulator: a header line, the number of rows, a row per step of a layer.

Times are in ns, sizes in bytes. SimAI runs forward and input-gradient collectives without a suffix over the tensor
groups, weight-gradient ones over the data-parallel groups; `_EP` and `_DP_EP` name the expert groups. The other
suffixes are those of `python -m simulation analytical`, which costs them; SimAI takes such a row for free.
"""

import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from common.errors import InputNote
from common.whole_files import encode_once, write_whole
from workloads.formats.simai_text import (  # fmt: skip
    BEGINNING,
    FIRST_ROW_LINE,
    MICRO,
    NEWER_KEYS,
    POLICY,
    TP_KEY,
    WorkItem,
    begins_simai,
    header_numbers,
    parse_header,
)
from workloads.job.errors import RowMistakes, WorkloadFileError
from workloads.job.parameters import WorkloadArgs
from workloads.rows.blocks import Block

INFERENCE = 1
"""The header's `mode` of a forward pass alone, as AICB has it; a training step has none."""


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
        numbers = header_numbers(line)
        if "ep" not in numbers:
            return cls(int(numbers[TP_KEY]), None, None, None, None, None, None)
        tp, ep, pp, vpp, ga = (int(numbers[key]) for key in (TP_KEY, *NEWER_KEYS))
        mode = int(numbers["mode"]) if "mode" in numbers else None
        return cls(tp, ep, pp, vpp, ga, int(numbers.get("all_gpus", 0)), numbers.get("pp_comm", 0), mode)


def is_simai(path: Path) -> bool:
    """Whether a file begins as a SimAI text does, whatever its name is.

    Raises:
        WorkloadFileError: it cannot be opened.
    """
    try:
        with path.open("rb") as file:
            return begins_simai(file.read(BEGINNING).decode("ascii", errors="replace"))
    except OSError as error:
        raise WorkloadFileError(path, None, error.strerror or str(error)) from None


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
            first, count, *lines = path.read_bytes().decode().removesuffix("\n").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise WorkloadFileError(path, None, str(error)) from None
        except ValueError:
            raise WorkloadFileError(path, None, "has fewer than two lines") from None
        try:
            said = parse_header(first, count)
            header = None if first.strip() == MICRO else SimaiHeader.from_text(first)
        except ValueError as error:
            hint = "; it is a CSV, which Workload.load reads" if first.startswith("comm_type,") else ""
            first, *others = (f"{path}, {each}{hint}" for each in str(error).split("\n"))
            line, _, problem = first.removeprefix(f"{path}, line ").partition(": ")
            raise WorkloadFileError(path, int(line), "\n".join([problem, *others])) from None
        if said.old:
            old = "its header is of before ep, pp, vpp, ga, all_gpus and pp_comm: they are None"
            warnings.warn(InputNote(f"{path}: {old}"), stacklevel=2)
        parse = cache(WorkItem.from_text)
        rows, mistakes = [], RowMistakes(path)
        for number, line in enumerate(lines, start=FIRST_ROW_LINE):
            try:
                rows.append(parse(line))
            except ValueError as error:
                mistakes.add(number, f"not a row of a SimAI workload: {error}")
        mistakes.check()
        if said.rows != len(rows):
            wrong = f"says {said.rows} rows, but {len(rows)} follow"
            if not said.old:
                raise WorkloadFileError(path, 2, wrong)
            # AICB ships a text of that form with another number: the rows that are there are what it has.
            warnings.warn(InputNote(f"{path}, line 2: {wrong}; these are taken"), stacklevel=2)
        return cls(header, Block(rows))
