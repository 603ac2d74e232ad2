"""Looks for other users' distributed jobs on a host, before a round's tasks start and after they ended.

None of ours runs at these moments, so every job belongs to somebody else: no process has to be attributed.
"""

from __future__ import annotations

from dataclasses import dataclass

from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.master_port import HOME_CLAIMS
from run_benchmarks.plan.plan import Plan
from run_benchmarks.runtimes.base import Runtime

SECONDS = 10.0
SHOWN_CHARACTERS = 300
TIME_DIGITS = 12  # of epoch seconds
# Arguments: our run, the folder of claims for users without a home, the host time (s) from which claims count. Brackets
# keep the pattern from matching this script's own command line. One grep reads all command lines.
SCRIPT = (
    HOME_CLAIMS
    + r"""
echo "now $(date +%s)"
[ -d "$claims" ] || claims=$2
for claim in "$claims/$(uname -n)"-*; do
  run=$(cat "$claim" 2>/dev/null) && [ "$run" != "$1" ] || continue
  [ "$(stat -c %Y "$claim")" -lt "$3" ] || echo "claim $run ${claim##*-}"
done
pattern='torch[r]un|torch[.]distributed[.](run|launch)|benchmarks[.]driver[.]launch'
grep -alE "$pattern" /proc/[0-9]*/cmdline 2>/dev/null | head -n 20 |
while IFS=/ read -r _ _ pid _; do
  user=$(stat -c %U "/proc/$pid" 2>/dev/null) || continue
  echo "process $pid $user $(tr '\0\n' '  ' < "/proc/$pid/cmdline" | cut -c 1-400)"
done
"""
)


@dataclass(frozen=True, kw_only=True)
class HostActivity:
    """Result of one look: the host's time (s), and in words whose tasks run there and which runs started there."""

    host_s: int
    running: tuple[str, ...]
    begun: tuple[str, ...]


def look(host: Host, plan: Plan, runtime: Runtime, since_s: int | None = None) -> HostActivity:
    """Look at a host. Claims of master ports count from `since_s` on, in seconds of the host's clock; None: not at all.

    Raises:
        HostError: the host does not answer.
    """
    since = str(1 << 62 if since_s is None else since_s)
    words = ["sh", "-c", SCRIPT, "sh", plan.key, plan.ports_dir_host, since]
    lines = host.run(words, deadline=SECONDS, check=False).stdout.splitlines()
    times = [line[4:] for line in lines if line.startswith("now ") and line[4:].isdecimal()]
    processes = [line.split(" ", 3)[1:] for line in lines if line.startswith("process ") and line.count(" ") >= 3]
    claims = [line.split()[1:3] for line in lines if line.startswith("claim ") and len(line.split()) == 3]
    return HostActivity(
        host_s=int(times[0][:TIME_DIGITS]) if times else 0,
        running=(
            *runtime.running_of_others(host, plan.key),
            *(f"process {pid} of {user}: {words[:SHOWN_CHARACTERS]}" for pid, user, words in processes),
        ),
        begun=tuple(f"run {run} claimed master port {port}" for run, port in claims),
    )
