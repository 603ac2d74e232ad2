"""Lists the runtimes that RUNTIME may name, with the module of each and what the plan needs to know."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema


@dataclass(frozen=True, kw_only=True)
class RuntimeEntry:
    """One runtime.

    Attributes:
        module: has `make(warn, output_bytes)`, which returns a Runtime (runtimes/base.py); imported at its first use.
        in_containers: its tasks run in containers of an image: they see code, logs and data under the container's
            paths, and the settings of images and containers have an effect.
        launcher: the LAUNCHER whose hosts it runs on.
    """

    module: str
    in_containers: bool
    launcher: str = "ssh"


RUNTIMES: dict[str, RuntimeEntry] = {
    "docker": RuntimeEntry(module="run_benchmarks.runtimes.docker", in_containers=True),
    "process": RuntimeEntry(module="run_benchmarks.runtimes.process", in_containers=False),
    "slurm": RuntimeEntry(module="run_benchmarks.runtimes.slurm", in_containers=False, launcher="slurm"),
}


def _known(name: str) -> str:
    if name not in RUNTIMES:
        raise ValueError(f"expected one of {', '.join(map(repr, RUNTIMES))}")
    return name


RuntimeName = Annotated[str, AfterValidator(_known), WithJsonSchema({"enum": list(RUNTIMES)})]
