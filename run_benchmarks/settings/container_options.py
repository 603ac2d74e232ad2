"""Parses container options in `docker run` syntax into typed settings; none of them ever reaches a shell."""

import re
import shlex
from collections.abc import Callable

from pydantic import BaseModel

from common.units import size_bytes
from run_benchmarks.settings.conf_file import nearest


class Volume(BaseModel, frozen=True, extra="forbid"):
    """A host folder or file that is mounted in the container."""

    source: str
    target: str
    read_only: bool = False


class Ulimit(BaseModel, frozen=True, extra="forbid"):
    """A resource limit; -1 is unlimited."""

    name: str
    soft: int
    hard: int


class ContainerOptions(BaseModel, frozen=True, extra="forbid"):
    """Options of a vendor or user for a container, besides image, command and our own mounts."""

    gpus: str | None = None
    runtime: str | None = None
    devices: tuple[str, ...] = ()
    cap_add: tuple[str, ...] = ()
    group_add: tuple[str, ...] = ()
    security_opt: tuple[str, ...] = ()
    ulimits: tuple[Ulimit, ...] = ()
    volumes: tuple[Volume, ...] = ()
    environment: dict[str, str] = {}
    ipc: str | None = None
    shm_size: int | None = None
    memory: int | None = None
    pids_limit: int | None = None
    privileged: bool = False


def _volume(text: str) -> Volume:
    source, separator, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not separator or not source.startswith("/") or not target.startswith("/") or mode not in ("", "ro", "rw"):
        raise ValueError(f"-v takes /host/path:/container/path[:ro], not {text!r}")
    return Volume(source=source, target=target, read_only=mode == "ro")


def _ulimit(text: str) -> Ulimit:
    match = re.fullmatch(r"([a-z]+)=(-?\d+)(?::(-?\d+))?", text)
    if not match:
        raise ValueError(f"--ulimit takes name=soft[:hard], not {text!r}")
    return Ulimit(name=match[1], soft=int(match[2]), hard=int(match[3] or match[2]))


def _environment(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise ValueError(f"-e takes NAME=value, not {text!r}")
    return name, value


def _gpus(text: str) -> str:
    if text != "all" and not re.fullmatch(r'[1-9]\d*|"?device=[\w,:-]+"?', text):
        raise ValueError(f"--gpus takes 'all', a count or device=0,1, not {text!r}")
    return text.strip('"')


def _device(text: str) -> str:
    if not text.startswith("/dev/") and not is_cdi_name(text):
        by_name = "a CDI name such as vendor.com/gpu=all"
        raise ValueError(f"--device takes /dev/name[:/dev/name[:rwm]] or {by_name}, not {text!r}")
    return text


def is_cdi_name(device: str) -> bool:
    """Whether a value of --device names a device of the Container Device Interface: vendor/class=name."""
    return re.fullmatch(r"[A-Za-z][\w.-]*\w/[A-Za-z][\w.-]*=[A-Za-z0-9][\w.:-]*", device) is not None


def _word(text: str) -> str:
    if not text.strip():
        raise ValueError("a value that is not empty")
    return text


def _pids(text: str) -> int:
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise ValueError(f"--pids-limit takes a number of processes and threads of at least 1, not {text!r}")
    return int(text)


def _switch(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"--privileged takes =true, =false or nothing, not {text!r}")
    return text.lower() == "true"


# option -> (field, whether it may stand more than once, parser of its value)
VALUED: dict[str, tuple[str, bool, Callable[[str], object]]] = {
    "--gpus": ("gpus", False, _gpus),
    "--runtime": ("runtime", False, _word),
    "--device": ("devices", True, _device),
    "--cap-add": ("cap_add", True, _word),
    "--group-add": ("group_add", True, _word),
    "--security-opt": ("security_opt", True, _word),
    "--ulimit": ("ulimits", True, _ulimit),
    "--volume": ("volumes", True, _volume),
    "-v": ("volumes", True, _volume),
    "--env": ("environment", True, _environment),
    "-e": ("environment", True, _environment),
    "--ipc": ("ipc", False, _word),
    "--shm-size": ("shm_size", False, size_bytes),
    "--pids-limit": ("pids_limit", False, _pids),
    "--memory": ("memory", False, size_bytes),
    "-m": ("memory", False, size_bytes),
}
FLAGS = {"--privileged": "privileged"}


def parse_container_options(text: str) -> ContainerOptions:
    """Parse `docker run` options, e.g. "--gpus all --ulimit memlock=-1".

    Raises:
        ValueError: an option is unknown (the message names the known ones and the nearest), or a value is malformed.
    """
    words = shlex.split(text)
    fields: dict[str, object] = {}
    while words:
        option, separator, value = words.pop(0).partition("=")
        if option in FLAGS:
            fields[FLAGS[option]] = _switch(value) if separator else True
            continue
        if option not in VALUED:
            raise ValueError(f"unknown container option {option!r}; {nearest(option, [*VALUED, *FLAGS])}")
        if not separator:
            if not words:
                raise ValueError(f"container option {option} needs a value")
            value = words.pop(0)
        field, repeated, parse = VALUED[option]
        if repeated:
            parsed = parse(value)
            fields[field] = (*fields.get(field, ()), parsed)  # type: ignore[misc]
        elif field in fields:
            raise ValueError(f"container option {option} is given twice")
        else:
            fields[field] = parse(value)
    if "environment" in fields:
        fields["environment"] = dict(fields["environment"])  # type: ignore[call-overload]
    return ContainerOptions.model_validate(fields)
