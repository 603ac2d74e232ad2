"""Reads a file of measured bus bandwidths (`-busbw`): YAML, or the older form that SimAI ships.

TP: {allreduce: 300, allgather: 280, reducescatter: 280, alltoall: 230}
DP: {allreduce: null, allgather: 380, reducescatter: 380}
EP: {allgather: 45, alltoall: 80}
PP: {busbw: 47.5}
"""

import re
from pathlib import Path

from common.errors import MistakeList, input_problem
from common.yaml_file import file_text, parsed_yaml
from workloads.formats.simai_text import ALLGATHER, ALLREDUCE, ALLTOALL, BROADCAST, DP, DP_EP, EP, PP, REDUCESCATTER, TP

PP_KEY = "BUSBW"
MOST_GBPS = 1_000_000
GROUP_KEYS = (ALLREDUCE, ALLGATHER, REDUCESCATTER, ALLTOALL, BROADCAST)
GROUPS = (TP, DP, EP, DP_EP, PP)
BusBandwidths = dict[tuple[str, str], float]
"""GB/s by group and collective (in capitals); a pair that the file leaves out, or gives as null, is not there."""

_OLD_KEY = re.compile(r"\s*(\w+),?\s*:\s*(\S*)\s*")
_OLD_GROUP = re.compile(r"(\w+)\s*:\s*")


def read_busbw(path: Path) -> BusBandwidths:
    """The bandwidths of a file.

    Raises:
        InputProblems: it cannot be read or has another form; the mistakes name file, group and key.
        SimulationError: PyYAML is not installed.
    """
    content = parsed_yaml(_as_yaml(file_text(path, "-busbw")), path, "-busbw")
    mistakes = MistakeList()
    if not isinstance(content, dict):
        raise input_problem("-busbw", path, f"needs groups ({', '.join(GROUPS)}), each with bus bandwidths in GB/s")
    found: BusBandwidths = {}
    for group, values in content.items():
        if group not in GROUPS:
            mistakes.add(str(path), group, f"is no group; there is {', '.join(GROUPS)}")
        elif not isinstance(values, dict):
            mistakes.add(str(path), group, f"needs keys with bus bandwidths in GB/s: {', '.join(_keys(group)).lower()}")
        else:
            _read_group(path, group, values, found, mistakes)
    mistakes.check()
    return found


def _read_group(
    path: Path, group: str, values: dict[object, object], found: BusBandwidths, mistakes: MistakeList
) -> None:
    for key, value in values.items():
        name = str(key).upper()
        where = f"{path}, {group}, {key}"
        if name not in _keys(group):
            mistakes.add(where, None, f"is unknown; there is {', '.join(_keys(group)).lower()}")
        elif value is None:
            continue
        elif isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_GBPS:
            mistakes.add(where, value, f"allowed is a bus bandwidth in GB/s above 0, at most {MOST_GBPS:,}, or null")
        else:
            found[group, name] = float(value)


def _keys(group: object) -> tuple[str, ...]:
    return (PP_KEY,) if group == PP else GROUP_KEYS


def _as_yaml(text: str) -> str:
    """The text, or, if it is the older form (a title line, keys with a comma, nothing indented), the YAML it means.

    Lines keep their numbers.
    """
    lines = [line.rstrip() for line in text.splitlines()]
    lines = ["" if line.lstrip().startswith("#") else line for line in lines]
    content = [line for line in lines if line]
    if not any(line.split(":")[0].rstrip().endswith(",") for line in content):
        return text
    if ":" not in content[0]:
        lines[lines.index(content[0])] = ""
    out = []
    for line in lines:
        group, pair = _OLD_GROUP.fullmatch(line), _OLD_KEY.fullmatch(line)
        out.append(line if group else f"  {pair[1]}: {pair[2]}" if pair else line)
    return "\n".join(out)
