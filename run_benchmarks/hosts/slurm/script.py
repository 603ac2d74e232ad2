"""Writes what Slurm is given: the batch script that holds an allocation, and the srun line of a step. No I/O."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from run_benchmarks.hosts.slurm.node_names import folded

# Nothing of a run happens in this batch script: run.py sends every step, and cancels the job at the end.
HOLD = "exec sleep infinity"
STEP = (
    "--nodes=1",
    "--ntasks=1",
    "--mem=0",  # all that the job has on the node
    "--overlap",  # beside the other steps of the job, whose processors it shares
    "--chdir=/",  # the folder of the submission need not exist there
    "--export=ALL",
    "--mpi=none",
    "--cpu-bind=none",
    "--quiet",
)


@dataclass(frozen=True, kw_only=True)
class Request:
    """An allocation to ask for.

    Attributes:
        name: of the job, by which a later call finds it.
        nodes: how many.
        hosts: which; empty if any will do.
        options: further options of sbatch, as words that begin with `--`.
        command: what the first node runs; without one the job holds its nodes, and run.py sends every step.
        output: the file of what the command prints.
    """

    name: str
    nodes: int
    hosts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    output: str = "/dev/null"

    @property
    def words(self) -> tuple[str, ...]:
        """The options of sbatch."""
        named = (f"--nodelist={folded(self.hosts)}",) if self.hosts else ()
        ours = (f"--job-name={self.name}", f"--nodes={self.nodes}-{self.nodes}", "--ntasks-per-node=1", *named)
        return (*ours, "--no-requeue", f"--output={self.output}", "--chdir=/", *self.options)


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """The surroundings of the command of every step: a container, or a shell that was set up.

    Attributes:
        options: of srun.
        prefix: words before the command.
        folders: of the node that must be there first.
    """

    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


def surroundings(
    *,
    folders: Sequence[str],
    setup: str | None,
    pyxis_image: str | None,
    apptainer_image: str | None,
    apptainer_options: Sequence[str] = (),
) -> Surroundings:
    """A shell that runs `setup` first, and a container of an image that sees `folders` under their own paths.

    pyxis makes the container once on each node, and steps enter it by its name; apptainer makes one for each step.
    """
    options: tuple[str, ...] = ()
    prefix: tuple[str, ...] = ()
    if setup is not None:
        prefix = ("bash", "-lc", f'{setup}\nexec "$@"', "bash")
    if pyxis_image is not None:
        mounts = ",".join(f"{folder}:{folder}" for folder in folders)
        named = ("--container-name=clusterdyno", "--container-workdir=/")
        options = (f"--container-image={pyxis_image}", f"--container-mounts={mounts}", *named)
    if apptainer_image is not None:
        seen = f"--bind={','.join(folders)}"
        prefix = (*prefix, "apptainer", "exec", *apptainer_options, "--pwd=/", seen, apptainer_image)
    is_contained = pyxis_image is not None or apptainer_image is not None
    return Surroundings(options=options, prefix=prefix, folders=tuple(folders) if is_contained else ())


def batch_script(request: Request) -> str:
    """The script that sbatch receives."""
    lines = [f"#SBATCH {shlex.quote(word)}" for word in request.words]
    last = f"exec {shlex.join(request.command)}" if request.command else HOLD
    return "\n".join(["#!/bin/sh", *lines, last]) + "\n"


def step_argv(job: str, host: str, argv: Sequence[str], *, cpus: int = 1, options: Sequence[str] = ()) -> list[str]:
    """The command that runs `argv` on a node of a job with so many processors.

    Without --cpus-per-task a step takes the whole node and the next one waits (srun does not read the job's own).
    """
    where = (f"--jobid={job}", f"--nodelist={host}")
    return ["srun", *where, *STEP, f"--cpus-per-task={cpus}", *options, *argv]
