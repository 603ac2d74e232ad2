"""Calls Slurm's commands: bounded in time, and without the user's own formats and filters in the environment."""

import os
import subprocess
from collections.abc import Mapping, Sequence

from run_benchmarks.errors import ClusterDynoError, shown, tail

CALL_SECONDS = 25.0  # squeue gives up after 18 s if slurmctld is away (22.05, MessageTimeout 10)
CANCEL_SECONDS = 20.0
# Variables of these prefixes change what the commands do and print (SQUEUE_USERS=nobody hides all jobs, SCANCEL_STATE
# spares some), and describe an allocation around us, which is named explicitly instead.
PROGRAMS = ("SBATCH", "SALLOC", "SRUN", "SQUEUE", "SACCT", "SINFO", "SCONTROL", "SCANCEL")
USERS_OWN = tuple(f"{name}_" for name in ("SLURM", "SLURMD", *PROGRAMS))
KEPT = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")  # where slurmctld is, and a token by which it knows the user
# Of Slurm's own words (libslurm, slurm_errno.c) those for a slurmctld that is gone, begins, or ends as it is asked.
AWAY = (
    "Unable to contact slurm", "Socket timed out", "Connection refused", "Communication connection failure",
    "Zero Bytes were transmitted or received", "in standby mode",
)  # fmt: skip
UNKNOWN = "Could not establish a configuration source"
"""Of Slurm's own words those where no slurm.conf tells where slurmctld is (libslurm, fetch_config.c)."""
LINES_SHOWN = 3


class SlurmError(ClusterDynoError):
    """A command of Slurm failed. `detail` is what it said; `is_away`: slurmctld did not answer, so nothing is known."""

    def __init__(self, argv: Sequence[str], detail: str, *, is_away: bool) -> None:
        self.detail, self.is_away = detail, is_away
        super().__init__(f"`{shown(argv)}`: {detail}")

    @property
    def is_unknown(self) -> bool:
        """Whether this machine has no commands of Slurm, or they do not know where slurmctld is."""
        return isinstance(self.__cause__, OSError) or UNKNOWN in self.detail


def environment(outer: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of Slurm's commands: ours, without what is Slurm's except the place of its configuration."""
    outer = os.environ if outer is None else outer
    return {key: value for key, value in outer.items() if key in KEPT or not key.startswith(USERS_OWN)}


def call(argv: Sequence[str], *, seconds: float = CALL_SECONDS, text: str | None = None) -> str:
    """The output of a command; `text` is its standard input.

    Raises:
        SlurmError: it failed, is not installed, or did not end within `seconds`.
    """
    try:
        done = subprocess.run(
            list(argv),
            input=text if text is not None else "",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            env=environment(),
            check=False,
            start_new_session=True,  # a Ctrl-C at the terminal is ours to handle
        )
    except subprocess.TimeoutExpired as error:
        raise SlurmError(argv, f"no answer within {seconds:g} s", is_away=True) from error
    except OSError as error:
        raise SlurmError(
            argv, f"{error.strerror or error}: is Slurm's client installed here?", is_away=False
        ) from error
    if done.returncode != 0:
        said = tail(done.stderr or done.stdout, LINES_SHOWN) or f"exit code {done.returncode}"
        raise SlurmError(argv, said, is_away=says_away(said))
    return done.stdout


def says_away(text: str) -> bool:
    """Whether a command of Slurm says that slurmctld did not answer it."""
    return any(words in text for words in AWAY)
