"""Reads the first two lines of a SimAI workload: how the model is divided, and the number of rows."""

from typing import NamedTuple

from workloads.formats.simai_rows import split_row

POLICY = "HYBRID_TRANSFORMER_FWD_IN_BCKWD"
MICRO = "MICRO"
TP_KEY = "model_parallel_NPU_group"
NEWER_KEYS = {"ep": 1, "pp": 1, "vpp": 1, "ga": 1}
_IGNORED = ("checkpoints", "checkpoint_initiates", "mode")
PP_COMM_LIMIT = 1 << 31  # bytes
SIZE_LIMIT = 1 << 31
_DIGITS = 18


class WorkloadHeader(NamedTuple):
    """How a workload is divided. vpp: chunks a stage, as the file says; ga: micro-batches; pp_comm: bytes a transfer.

    all_gpus is 0 where the file does not say it. rows: what line 2 says. notes: what was missing and assumed.
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


def parse_header(first: str, second: str) -> WorkloadHeader:
    """The header of a workload, of this or an older form.

    Raises:
        ValueError: a key is missing, unknown or malformed; the message names all of them, one a line.
    """
    rows, problems = _rows(second)
    words = first.replace(":", " ").split()
    if words == [MICRO]:
        note = f"the header is the old {MICRO}: tp, ep, pp, vpp and ga are taken as 1"
        return _made({}, rows, True, (note,), problems)
    if not words or words[0] != POLICY:
        problems.insert(0, f"line 1: does not begin with {POLICY} or {MICRO}")
        return _made({}, rows, True, (), problems)
    numbers, wrong = _pairs(words[1:])
    problems = wrong + problems
    if TP_KEY not in numbers and not wrong:
        problems.append(f"line 1: lacks {TP_KEY}")
    missing = [key for key in NEWER_KEYS if key not in numbers]
    note = f"the header is old: it lacks {', '.join(missing)}, taken as 1"
    return _made(numbers, rows, bool(missing), (note,) if missing else (), problems)


def _made(numbers: dict[str, int], rows: int, old: bool, notes: tuple[str, ...], problems: list[str]) -> WorkloadHeader:
    sizes = {key: numbers.get(key, missing) for key, missing in (NEWER_KEYS | {TP_KEY: 1}).items()}
    wrong = {key: number for key, number in sizes.items() if not 0 < number < SIZE_LIMIT}
    problems += [f"line 1: {key} is {number:.6g}, allowed is 1 to 2^31 - 1" for key, number in wrong.items()]
    pp_comm = numbers.get("pp_comm", 0)
    if pp_comm >= PP_COMM_LIMIT or pp_comm < 0:
        problems.append(f"line 1: pp_comm is {pp_comm}, allowed is 0 to {PP_COMM_LIMIT - 1} bytes")
    if problems:
        raise ValueError("\n".join(problems))
    return WorkloadHeader(
        sizes[TP_KEY], sizes["ep"], sizes["pp"], sizes["vpp"], sizes["ga"], numbers.get("all_gpus", 0), pp_comm,
        rows, old, notes,
    )  # fmt: skip


def _pairs(words: list[str]) -> tuple[dict[str, int], list[str]]:
    known = (TP_KEY, *NEWER_KEYS, "all_gpus", "pp_comm", *_IGNORED)
    numbers: dict[str, int] = {}
    problems = []
    position = 0
    while position < len(words):
        key, text = words[position], words[position + 1] if position + 1 < len(words) else ""
        position += 2
        if key not in known:
            problems.append(f"line 1: {key[:40]} is unknown; there is {', '.join(known)}")
            position -= 1 if text in known else 0
            continue
        try:
            numbers[key] = int(float(text)) if "." in text or "e" in text.lower() else int(text[: _DIGITS + 1])
        except (ValueError, OverflowError):
            problems.append(f"line 1: {key} is {text[:40]!r}, not a whole number")
    return numbers, problems


def _rows(line: str) -> tuple[int, list[str]]:
    text = split_row(line.encode())[0].decode() if line.split() else ""
    if text.isdecimal() and len(text) <= _DIGITS and len(line.split()) == 1:
        return int(text), []
    return 0, [f"line 2: {line.strip()[:40]!r} is not the number of rows"]
