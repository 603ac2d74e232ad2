"""The recorded runs of SimAI's analytical program: commands, summaries, CSVs and their workloads."""

import hashlib
import io
import json
import tarfile
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.docs.pages import ROOT

DATA = ROOT / "tests" / "data" / "simulation" / "analytical"
SEED = "workload_analytical"
SEED_OPTIONS = ("-g", "9216", "-nv", "360", "-nic", "48.5", "-n_p_s", "8", "-g_p_s", "8")
LLAMA = "simai_llama405b_ws4096_tp8_pp16_sp_aiobExample"


class RecordedRun(NamedTuple):
    """One run: its options without -w, the workload's name, the summary's cells, and the CSV's bytes or their hash."""

    name: str
    workload: str
    options: tuple[str, ...]
    file: str
    summary: tuple[str, ...]
    sha256: str
    csv: bytes | None

    def first_difference(self, made: bytes) -> str:
        """The first cell that differs, or nothing."""
        if self.csv is None:
            summary = made.decode().split("\n")[1].split(", ")
            cells = [pair for pair in zip(summary, self.summary, strict=True) if pair[0] != pair[1]]
            same = hashlib.sha256(made).hexdigest() == self.sha256
            return f"summary: {cells}" if cells else "" if same else "rows differ from the recorded hash"
        if made == self.csv:
            return ""
        ours, theirs = made.decode().split("\n"), self.csv.decode().split("\n")
        for number, (line, other) in enumerate(zip(ours, theirs, strict=False), start=1):
            separator = ", " if number < 3 else ","
            for at, (cell, wanted) in enumerate(zip(line.split(separator), other.split(separator), strict=False)):
                if cell != wanted:
                    return f"line {number}, column {at + 1}: {cell!r}, recorded is {wanted!r}"
        return f"{len(ours)} lines, recorded are {len(theirs)}"


@cache
def archive() -> dict[str, bytes]:
    """Every recorded file by its name."""
    with tarfile.open(fileobj=io.BytesIO((DATA / "recorded.tar.xz").read_bytes()), mode="r:xz") as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}  # type: ignore[union-attr]


@cache
def runs() -> tuple[RecordedRun, ...]:
    """All recorded runs."""
    made = []
    for entry in json.loads(archive()["analytical/INDEX.json"]):
        words = entry["cmd"].split()[1:]
        at = words.index("-w")
        file = entry["files"][0]
        made.append(
            RecordedRun(
                entry["name"],
                Path(words[at + 1]).stem,
                tuple(words[:at] + words[at + 2 :]),
                file["file"],
                tuple(entry["summary"].values()),
                file["sha256"],
                archive().get(f"analytical/{entry['name']}/{file['file']}"),
            )
        )
    return tuple(made)


def workload(name: str, folder: Path) -> Path:
    """A recorded workload as a file in `folder`."""
    path = folder / f"{name}.txt"
    for place in ("analytical_workloads", "analytical_workloads/aicb_golden"):
        content = archive().get(f"{place}/{name}.txt")
        if content is not None:
            path.write_bytes(content)
            return path
    raise FileNotFoundError(name)
