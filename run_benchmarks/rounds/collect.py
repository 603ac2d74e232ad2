"""Brings a node's files to the head node after a round, without secrets, and writes down how its task was launched."""

import hashlib
import json
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from common.reading import read_bounded
from protocol.masking import mask_argv, mask_environment, mask_output, secret_values
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import CollectError
from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.incoming.limits import CollectLimits
from run_benchmarks.hosts.transfer import fetch
from run_benchmarks.results.node_outcome import NodeOutcome
from run_benchmarks.results.rank_logs import rank_log_name
from run_benchmarks.results.records import CollectedFile, write_text
from run_benchmarks.rounds.masked_files import mask_files

HEAD_BYTES, TAIL_BYTES = 128 << 10, 512 << 10
SECONDS = 60.0
FILE_MODE = 0o640
# Arguments: the log, bytes of its beginning and of its end. Prints its size, then both, or all of a shorter log.
ENDS = """
size=$(stat -c %s -- "$1") || exit
echo "$size"
[ "$size" -gt "$(($2 + $3))" ] || exec cat -- "$1"
head -c "$2" -- "$1"
tail -c "$3" -- "$1"
"""


def bring_ends(host: Host, source: str, file: Path) -> str:
    """Replace what is here of a log, `file`, by its beginning, a line with the number of missing bytes, and its end.

    What is here already stays as the beginning, as far as it is a longer one. Both parts are cut at the ends of lines.

    Returns:
        the sha256 of what is kept.

    Raises:
        HostError: the host does not answer, or the log cannot be read there.
        CollectError: it cannot be kept here.
    """
    came = bytearray()
    words = ["sh", "-c", ENDS, "sh", f"{source}/{file.name}", str(HEAD_BYTES), str(TAIL_BYTES)]
    limit = HEAD_BYTES + TAIL_BYTES + len(str(1 << 64))

    def take(chunk: bytes) -> None:
        came.extend(chunk[: limit - len(came)])

    host.run(words, deadline=SECONDS, on_stdout=take)
    said, _, rest = bytes(came).partition(b"\n")
    size = int(said) if said.isdigit() else 0
    head, tail = rest[:HEAD_BYTES], rest[HEAD_BYTES:]
    tail = tail if len(rest) == size else tail[tail.find(b"\n") + 1 :]
    try:
        return _write(file, size, head, tail)
    except OSError as error:
        raise CollectError(host.name, f"the end of {file.name} cannot be kept on the head node: {error}") from error


def _write(file: Path, size: int, head: bytes, tail: bytes) -> str:
    with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE), "r+b") as log:
        there = log.seek(0, os.SEEK_END)
        if there <= len(head) or len(head) + len(tail) == size:
            log.seek(0)
            there = log.write(head)
        keep = min(there, max(len(head), there - len(tail)))
        missing = max(0, size - keep - len(tail))
        if missing:
            keep = _line_end(log, keep)
        log.seek(keep)
        log.truncate()
        log.write(b"[... %d bytes are left out here ...]\n" % max(0, size - keep - len(tail)) if missing else b"")
        log.write(tail)
        log.seek(0)
        return hashlib.file_digest(log, "sha256").hexdigest()


def _line_end(log: IO[bytes], before: int) -> int:
    """The end of the last line among the first `before` bytes; `before` if none of the last of them ends a line."""
    start = max(0, before - HEAD_BYTES)
    log.seek(start)
    place = log.read(before - start).rfind(b"\n")
    return before if place < 0 else start + place + 1


COLLECT_SECONDS = 600.0  # without progress
LAUNCH_LOG, OUTPUT = "start_{}_task.log", "output:"
MAX_LAUNCH_LOG_BYTES = 64 << 20


def collect_node(
    host: Host,
    outcome: NodeOutcome,
    framework: str,
    master_port: int,
    *,
    config: Mapping[str, object] | None = None,
    limits: CollectLimits | None = None,
    warn: Callable[[str], None] = LOG.warning,
) -> None:
    """Pull the node's folder, verified, mask the secrets in it, and write start_<framework>_task.log beside it.

    `outcome` receives the files that arrived valid (as on the host, or as kept here with secrets masked) and those that
    did not; `warn` receives what was left out or cut.

    Raises:
        HostError: files could not be brought, as one of its kinds; the launch log is written in any case.
    """
    node = outcome.node
    secrets = secret_values(node.workload.environment, node.workload.argv, config)
    outcome.output = mask_output(outcome.output, secrets)
    launch_log = LAUNCH_LOG.format(framework)
    write_text(outcome.folder / launch_log, _launch_log(outcome, master_port))
    outcome.incomplete = True
    files: dict[str, str] = {}
    try:
        pulled = fetch(
            host,
            node.log_dir_host,
            outcome.folder,
            deadline=COLLECT_SECONDS,
            limits=limits,
            reserved=(launch_log,),
            warn=warn,
        )
        files, outcome.incomplete = pulled.files, pulled.incomplete
        outcome.cut = pulled.cut.intersection(map(rank_log_name, node.ranks))
        for name in sorted(outcome.cut):
            files[name] = bring_ends(host, node.log_dir_host, outcome.folder / name)
            warn(f"{node.host}: of {name}, too long for MAX_COLLECT_BYTES, beginning and end are kept")
    except CollectError as error:
        files, outcome.left_behind = files | error.files, error.missing
        outcome.cut |= error.cut
        raise
    finally:
        masked = mask_files(outcome.folder, secrets)
        if masked:
            LOG.warning("%s: secrets were masked in %s", node.host, ", ".join(sorted(masked)))
        outcome.files = {
            name: CollectedFile(size=(outcome.folder / name).stat().st_size, sha256=masked.get(name, digest))
            for name, digest in files.items()
        }


def _launch_log(outcome: NodeOutcome, master_port: int) -> str:
    node = outcome.node
    environment = mask_environment(node.workload.environment)
    lines = [
        f"host: {node.host}",
        f"node rank: {node.node_rank}, ranks {', '.join(map(str, node.ranks))}",
        f"image: {node.image or 'none (process runtime)'}",
        f"mounts: {json.dumps([mount.model_dump() for mount in node.mounts])}",
        f"options: {node.options.model_dump_json(exclude_defaults=True, exclude={'environment'})}",
        "environment:",
        *(f"  {name}={value}" for name, value in sorted(environment.items())),
        f"argv: {shlex.join(mask_argv(node.workload.bound_argv(master_port)))}",
        f"monitor argv: {shlex.join(mask_argv(node.monitor.argv))}",
        f"exit code: {'none' if outcome.exit_code is None else outcome.exit_code}",
        *([f"error: {outcome.error}"] if outcome.error else []),
        OUTPUT,
        outcome.output.rstrip(),
    ]
    return "\n".join(lines) + "\n"


def recorded_output(folder: Path, framework: str) -> str:
    """The output of a node's task, as the launch log that we wrote has it; "" without one."""
    try:
        text = read_bounded(folder / LAUNCH_LOG.format(framework), MAX_LAUNCH_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
    return text.partition(f"\n{OUTPUT}\n")[2]
