"""Brings a node's files to the head node after a round and writes down how its task was launched."""

from __future__ import annotations

import json
import shlex

from run_benchmarks.hosts.base import Host
from run_benchmarks.hosts.transfer import pull
from run_benchmarks.plan import NodePlan
from run_benchmarks.results.judge import NodeOutcome
from run_benchmarks.results.records import write_text
from training.benchmarks.driver.masking import mask_argv, mask_environment

COLLECT_SECONDS = 600.0


def collect_node(host: Host, node: NodePlan, outcome: NodeOutcome, framework: str, master_port: int) -> dict[str, str]:
    """Pull the node's folder, verified, and write start_<framework>_task.log beside it.

    Returns:
        sha256 by file name of what came from the host.

    Raises:
        HostError: what could not be brought, as one of its kinds; the launch log is written anyway.
    """
    write_text(outcome.folder / f"start_{framework}_task.log", _launch_log(node, outcome, master_port))
    return pull(host, node.log_dir_host, outcome.folder, deadline=COLLECT_SECONDS)


def _launch_log(node: NodePlan, outcome: NodeOutcome, master_port: int) -> str:
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
        "output:",
        outcome.output.rstrip(),
    ]
    return "\n".join(lines) + "\n"
