"""Runs `python -m simulation analytical` in this process and reads back what it wrote."""

import contextlib
import io
import json
from pathlib import Path
from typing import Any, NamedTuple

from simulation.cli import main

HEADER = (
    "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: {tp} ep: {ep} pp: {pp} vpp: {vpp} ga: {ga} "
    "all_gpus: {gpus} checkpoints: 0 checkpoint_initiates: 0 pp_comm: {pp_comm}"
)
CLUSTER = ("-g_p_s", "8", "-n_p_s", "8", "-nv", "360", "-nic", "48.5")


class Answer(NamedTuple):
    """Exit code, stdout and stderr."""

    code: int
    out: str
    err: str

    @property
    def summary(self) -> dict[str, Any]:
        """The summary of --json."""
        return dict(json.loads(self.out)["summary"])

    @property
    def total(self) -> float:
        """Time of the iteration in us."""
        return float(self.summary["total_us"])


def ask(*words: str) -> Answer:
    """One run."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["analytical", "--force", *words])
    return Answer(code, out.getvalue(), err.getvalue())


def write(path: Path, rows: list[str], **sizes: int) -> Path:
    """A workload with these rows. Sizes that are not given are 1, pp_comm 0."""
    header = HEADER.format(**({"tp": 1, "ep": 1, "pp": 1, "vpp": 1, "ga": 1, "gpus": 8, "pp_comm": 0} | sizes))
    path.write_text("\n".join([header, str(len(rows)), *rows]) + "\n", encoding="utf-8")
    return path


def row(
    forward: str = "NONE 0", gradient: str = "NONE 0", weight: str = "NONE 0", name: str = "layer", ns: int = 0
) -> str:
    """One row; each phase is a collective and its bytes."""
    return f"{name} -1 {ns} {forward} {ns} {gradient} {ns} {weight} 100"


def times(workload: Path, *options: str) -> dict[str, Any]:
    """The phases of row 1, explained."""
    answer = ask("-w", str(workload), *options, "--explain", "1", "--json")
    assert answer.code == 0, answer.err
    return dict(json.loads(answer.out))
