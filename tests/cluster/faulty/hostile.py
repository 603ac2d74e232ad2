"""What a rank of a hostile host writes and leaves in its log folder, for whoever reads it on the head node."""

import json
import os
import sys
import time
from pathlib import Path

import protocol

DEEP = 100_000
CLIPBOARD = "\x1b]52;c;aGFja2Vk\x07\x1b[2J"
# As JSON text: no reader may break at one.
REFUSED = (
    "[" * DEEP + "]" * DEEP,
    '{"a":' * DEEP + "1" + "}" * DEEP,
    "9" * 5000,
    "1" + "0" * 400,
    '{"a": 1, "a": 2}',
    "[" * DEEP,
)
ALLOWED = ('"\\ud800"', '{"\\udfff": "\\udc00"}', "NaN", "1e999", json.dumps(CLIPBOARD))
SPARSE_BYTES = 1 << 30


def leave_anything(rank: int) -> None:
    """Everything at which readers break, in the log, the monitor's record and the folder."""
    leave_what_is_allowed(rank)
    folder = _folder()
    _log(REFUSED, rank)
    with (folder / "monitor.jsonl").open("a") as file:
        for text in REFUSED + ALLOWED:
            file.write(f'{{"schema": 1, "t_ms": 1, "source": "cpu", "values": {{"utilization_percent": {text}}}}}\n')
    (folder / "sys_info.json").write_text(REFUSED[0])
    with (folder / "sparse").open("wb") as file_of_holes:
        file_of_holes.truncate(SPARSE_BYTES)


def leave_what_is_allowed(rank: int) -> None:
    """What is strange and no fault: escapes, half surrogates, a progress bar without line ends, a link, a pipe."""
    _log(ALLOWED, rank)
    print(CLIPBOARD)
    for _ in range(1024):
        sys.stdout.write("\r 50 %|#####     |" * 1024)
    print(flush=True)
    (_folder() / "latest").symlink_to("/etc/passwd")
    os.mkfifo(_folder() / "pipe")


def _log(values: tuple[str, ...], rank: int) -> None:
    for text in values:
        metadata = json.dumps({"file": "hostile.py", "lineno": 1, "time_ms": time.time_ns() // 1_000_000, "rank": rank})
        print(f'[PerfLog] {{"event": "EVALUATE", "value": {text}, "metadata": {metadata}}}', flush=True)


def _folder() -> Path:
    """The log folder: a rank's standard output is a file there."""
    return Path("/proc/self/fd/1").readlink().parent


def add_code(_rank: int) -> None:
    """A file beside the code, which whoever starts Python there from now on takes for the standard library's."""
    (Path(protocol.__file__).parents[1] / "statistics.py").write_text("def median(values): return 1000.0\n")


LEAVES = {"hostile": leave_anything, "odd": leave_what_is_allowed, "adds": add_code}
