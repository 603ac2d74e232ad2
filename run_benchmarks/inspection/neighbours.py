"""Looks for other users' distributed jobs on a host, before a round's tasks start and after they ended.

The same command looks at the file systems of its folders.

None of ours runs at these moments, so every job belongs to somebody else: no process has to be attributed. A command
line may hold secrets: of a process its number, its user and the launcher's name are all that leaves the host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from common.shortening import shortened
from run_benchmarks.errors import DeadlineError
from run_benchmarks.hosts.base import Host
from run_benchmarks.inspection.health import parsed
from run_benchmarks.inspection.health_script import FILE_SYSTEMS, SAY
from run_benchmarks.inspection.master_port import HOME_CLAIMS
from run_benchmarks.inspection.storage import FileSystem, states_in
from run_benchmarks.plan.plan import Plan
from run_benchmarks.runtimes.base import Runtime

SECONDS = 30.0
SHOWN = 5  # of each kind; the others are counted
SHOWN_CHARACTERS = 200
TIME_DIGITS = 12  # of epoch seconds
PROCESS = re.compile(r"process (\d{1,9}) (\d{1,9}) ([a-z._]{1,64}) (\S.{0,63})")
CLAIM = re.compile(r"claim ([\w.-]{1,100}) (\d{1,5})", re.ASCII)
# Arguments: our run, the folder of claims for users without a home, the host time (s) from which claims count, folders
# whose file systems are looked at. Brackets
# keep the pattern from matching this script's own command line. One grep reads all command lines. Of each user's
# processes of one launcher it prints their number and the first.
SCRIPT = (
    HOME_CLAIMS
    + r"""
echo "now $(date +%s)"
[ -d "$claims" ] || claims=$2
for claim in "$claims/$(uname -n)"-*; do # also those of a host named gpu-1 beside one named gpu
  [ "$claim" = "$claims/$(uname -n)-${claim##*-}" ] || continue
  run=$(cat "$claim" 2>/dev/null) && [ "$run" != "$1" ] || continue
  [ "$(stat -c %Y "$claim")" -lt "$3" ] || echo "claim $run ${claim##*-}"
done
pattern='torch[r]un|torch[.]distributed[.](run|launch)|benchmarks[.]driver[.]launch'
jobs=$(grep -aoHE "$pattern" /proc/[0-9]*/cmdline 2>/dev/null | awk -F'[/:]' '!seen[$3]++ {print $3, $5}')
owners=$(printf '%s\n' "$jobs" | sed -n 's#^\([0-9]\{1,\}\) .*#/proc/\1#p' | xargs stat -c '%n %U' 2>/dev/null)
printf '%s\n' "$owners" "$jobs" | awk '
  sub("^/proc/", "") {pid = $1; sub("^[0-9]+ ", ""); user[pid] = $0; next}
  $1 in user {key = $2 " " user[$1]; count[key]++; if (!(key in first)) first[key] = $1}
  END {for (key in count) print "process", count[key], first[key], key}'
shift 3
"""
    + SAY
    + FILE_SYSTEMS
)


@dataclass(frozen=True, kw_only=True)
class HostActivity:
    """Result of one look: the host's time (s), in words whose tasks run there and which runs started there, the file
    systems by folder, and in words what of them is not known. late: why other runs may be missing, or "".
    """

    host_s: int
    running: tuple[str, ...]
    begun: tuple[str, ...]
    stored: Mapping[str, FileSystem]
    unstored: tuple[str, ...]
    late: str


def look(
    host: Host, plan: Plan, runtime: Runtime, since_s: int | None = None, folders: Sequence[str] = ()
) -> HostActivity:
    """Look at a host and the file systems of folders. Claims of master ports count from `since_s` on, in seconds of the
    host's clock; None: not at all. What a host told before the deadline counts.

    Raises:
        HostError: the host does not answer.
    """
    since = str(1 << 62 if since_s is None else since_s)
    words = ["sh", "-c", SCRIPT, "sh", plan.key, plan.ports_dir_host, since, *folders]
    text, late = _told(host, words)
    lines, told = text.splitlines(), parsed(text)
    times = [line[4:] for line in lines if line.startswith("now ") and line[4:].isdecimal()]
    claims = [found for line in lines if (found := CLAIM.fullmatch(line))]
    return HostActivity(
        host_s=int(times[0][:TIME_DIGITS]) if times else 0,
        running=(
            *few(runtime.running_of_others(host, plan.key), "containers"),
            *few(list(_processes(lines)), "kinds of processes"),
        ),
        begun=few([f"run {found[1]} claimed master port {found[2]}" for found in claims], "claims of master ports"),
        stored=states_in(told),
        unstored=few([f"{what}: {why}" for what, why in told.of("cannot", 2)], "answers"),
        late=late,
    )


def _told(host: Host, words: Sequence[str]) -> tuple[str, str]:
    """The whole lines that a command prints before the deadline, and why there are no more, or ""."""
    try:
        return host.run(words, deadline=SECONDS, check=False).stdout, ""
    except DeadlineError as error:
        if not error.output.startswith("now "):
            raise
        return error.output.rpartition("\n")[0], f"not all within {SECONDS:g} s"


def few(words: Sequence[str], kind: str) -> tuple[str, ...]:
    """The first SHOWN of a host's words, each of at most SHOWN_CHARACTERS, and the number of the others."""
    shown = (shortened(each, SHOWN_CHARACTERS) for each in words[:SHOWN])
    return (*shown, *([f"{len(words) - SHOWN} more {kind}"] if len(words) > SHOWN else []))


def _processes(lines: Iterable[str]) -> Iterator[str]:
    """A sentence for each user and program: "root: 17 processes, such as 4711 torchrun"."""
    counts: Counter[tuple[str, str]] = Counter()
    first: dict[tuple[str, str], str] = {}
    for line in lines:
        if found := PROCESS.fullmatch(line):
            count, pid, program, user = found.groups()
            counts[user, program] += int(count)
            first.setdefault((user, program), pid)
    for (user, program), count in counts.most_common():
        pid = first[user, program]
        some = f"process {pid}" if count == 1 else f"{count} processes, such as {pid}"
        yield f"{user}: {some} {program}"
