"""Asks the hosts of a round that broke, in whatever phase, for what its logs cannot tell.

A reboot (boot id), the engine and the container (by their runtime), the kernel's out-of-memory killer, a full disk.
"""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import ValidationError

from protocol import safe_json
from protocol.circumstance import Circumstance, CircumstanceKind
from protocol.node_record import NODE_EXIT_FILE, NodeExit, signal_name
from run_benchmarks.errors import HostError
from run_benchmarks.hosts.fleet import for_each
from run_benchmarks.inspection.boot import BOOT, boot_in
from run_benchmarks.inspection.facts import read_space
from run_benchmarks.state.context import HEARTBEAT_SECONDS, RunningNode

NODE_EXIT_BYTES = 1 << 20
SIGNALLED = 128  # a shell's exit code for a process that a signal ended, less the signal
FULL_BYTES = 1 << 20  # less free space fails the writers of logs and records
MOUNT_CHARACTERS = 200
INODES = "inodes:"
# Argument: the node's log folder. Prints the boot, and what df tells of the folder's file system: bytes, then inodes.
ASK = f"""
{BOOT}
df -Pk "$1" 2>/dev/null
echo {INODES}
df -Pi "$1" 2>/dev/null
true
"""


def examine(nodes: Mapping[str, RunningNode], *, are_stopped: bool = False) -> None:
    """Add to the circumstances of every node whose host answers; one that cannot be asked has no more.

    `are_stopped`: this run has stopped the tasks, whose state tells nothing any more.
    """
    there = {name: node for name, node in nodes.items() if not node.lost}
    found = for_each(there, lambda node: list(_circumstances(node, are_stopped)), reads_hosts=True).succeeded
    order = list(CircumstanceKind)
    for name, new in found.items():
        outcome = nodes[name].outcome
        by_kind = {each.kind: each for each in (*new, *outcome.circumstances)}
        outcome.circumstances = tuple(sorted(by_kind.values(), key=lambda each: order.index(each.kind)))


def _circumstances(node: RunningNode, are_stopped: bool) -> Iterator[Circumstance]:
    argv = ["sh", "-c", ASK, "sh", node.plan.log_dir_host]
    answer = node.host.run(argv, deadline=HEARTBEAT_SECONDS).stdout.splitlines()
    boot_id = boot_in(answer)
    if node.boot_id and boot_id and boot_id != node.boot_id:
        yield Circumstance(kind=CircumstanceKind.REBOOT, words="the host was rebooted during the round")
    if full := _full([line for line in answer if not line.startswith("boot ")]):
        yield Circumstance(kind=CircumstanceKind.DISK, words=f"{full} {node.plan.log_dir_host}")
    if not are_stopped:
        yield from _of_task(node)


def _of_task(node: RunningNode) -> Iterator[Circumstance]:
    if node.workload is None or (node.done and node.outcome.exit_code == 0):
        return
    trouble: Circumstance | None = None
    silence = node.silence
    if not silence:
        try:
            trouble = node.workload.trouble()
        except HostError as error:
            silence = error.detail
    if silence:
        yield Circumstance(kind=CircumstanceKind.ENGINE, words=f"its runtime does not answer: {silence}")
    if trouble is not None and (node.is_made or trouble.kind is not CircumstanceKind.TASK):
        yield trouble
    elif node.done and (words := _killed(node)):
        yield Circumstance(kind=CircumstanceKind.TASK, words=words)


def _killed(node: RunningNode) -> str | None:
    """The signal that ended a launcher whose task this run did not stop."""
    code, record = node.outcome.exit_code or 0, recorded_end(node)
    if record is not None:
        return None if record.signal is None else f"its launcher was ended by {record.signal}, and not by this run"
    return None if code <= SIGNALLED else f"its launcher was killed by {signal_name(code - SIGNALLED)}"


def recorded_end(node: RunningNode) -> NodeExit | None:
    """The launch's record of its end on that node; None without a readable one."""
    path = f"{node.plan.log_dir_host}/{NODE_EXIT_FILE}"
    try:
        found = node.host.run(["head", "-c", str(NODE_EXIT_BYTES), path], deadline=HEARTBEAT_SECONDS)
        return NodeExit.model_validate(safe_json.load(found.stdout))
    except (HostError, ValidationError, safe_json.UnsafeJsonError):
        return None


def _full(answer: Sequence[str]) -> str | None:
    """The resources of a file system that are used up, by the two tables of df; None if there is room."""
    middle = answer.index(INODES) if INODES in answer else len(answer)
    space = read_space("\n".join(answer[:middle]))
    if space is not None and space[0] < FULL_BYTES:
        return f"the disk is full: {space[0]} bytes are free on {space[1][:MOUNT_CHARACTERS]}, which holds"
    words = answer[-1].split(maxsplit=5) if len(answer) > middle + 2 else []
    if len(words) == 6 and words[3] == "0" and words[1] not in ("0", "-"):
        return f"the disk is full: no inode is free on {words[5][:MOUNT_CHARACTERS]}, which holds"
    return None
