"""Brings a node's files to the head node after a round, without secrets, and writes down how its task was launched."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

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
from run_benchmarks.rounds.log_ends import bring_ends
from run_benchmarks.rounds.masked_files import mask_files

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
