"""`docker run` options become typed settings, whatever they hold."""

import re
import shlex
import subprocess
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from run_benchmarks.settings.container_options import (
    ContainerOptions,
    Ulimit,
    Volume,
    parse_container_options,
)

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
WORD = TEXT.filter(lambda text: text.strip() != "")
PATH = TEXT.map(lambda text: "/" + text.replace(":", "_"))
NAME = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,10}", fullmatch=True)
LIMIT = st.integers(-1, 2**63 - 1)
OPTIONS = st.builds(
    ContainerOptions,
    gpus=st.none() | st.just("all") | st.integers(1, 99).map(str) | st.just("device=0,1"),
    runtime=st.none() | WORD,
    devices=st.lists(PATH.map(lambda path: "/dev" + path), max_size=3).map(tuple),
    cap_add=st.lists(WORD, max_size=3).map(tuple),
    group_add=st.lists(WORD, max_size=2).map(tuple),
    security_opt=st.lists(WORD, max_size=2).map(tuple),
    ulimits=st.lists(
        st.builds(Ulimit, name=st.from_regex(r"[a-z]{1,8}", fullmatch=True), soft=LIMIT, hard=LIMIT), max_size=3
    ).map(tuple),
    volumes=st.lists(st.builds(Volume, source=PATH, target=PATH, read_only=st.booleans()), max_size=3).map(tuple),
    environment=st.dictionaries(NAME, st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))),
    ipc=st.none() | WORD,
    shm_size=st.none() | st.integers(1, 2**50),
    memory=st.none() | st.integers(1, 2**50),
    pids_limit=st.none() | st.integers(1, 999_999_999),
    privileged=st.booleans(),
)


def written(options: ContainerOptions, *, joined: bool) -> str:
    """The options as a person would write them, `--name=value` or `--name value`."""
    pairs: list[tuple[str, Any]] = [
        ("--gpus", options.gpus),
        ("--runtime", options.runtime),
        ("--ipc", options.ipc),
        ("--shm-size", options.shm_size),
        ("--memory", options.memory),
        ("--pids-limit", options.pids_limit),
        *(("--device", device) for device in options.devices),
        *(("--cap-add", name) for name in options.cap_add),
        *(("--group-add", name) for name in options.group_add),
        *(("--security-opt", name) for name in options.security_opt),
        *(("--ulimit", f"{limit.name}={limit.soft}:{limit.hard}") for limit in options.ulimits),
        *(("-v", f"{v.source}:{v.target}{':ro' if v.read_only else ''}") for v in options.volumes),
        *(("-e", f"{name}={value}") for name, value in options.environment.items()),
    ]
    words = ["--privileged"] if options.privileged else []
    for name, value in pairs:
        if value is not None:
            words += [f"{name}={value}"] if joined else [name, str(value)]
    return shlex.join(words)


@given(options=OPTIONS, joined=st.booleans())
def test_what_is_written_is_what_is_parsed(options: ContainerOptions, joined: bool) -> None:
    assert parse_container_options(written(options, joined=joined)) == options


def test_nothing_of_the_text_reaches_a_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr("os.system", refuse)
    options = parse_container_options("-e 'A=$(touch /tmp/x); `id` $HOME *' --ipc host")
    assert options.environment == {"A": "$(touch /tmp/x); `id` $HOME *"}


def test_flagperf_s_options() -> None:
    assert parse_container_options(" --gpus all") == ContainerOptions(gpus="all")
    assert parse_container_options("") == ContainerOptions()
    many = parse_container_options(
        "--device=/dev/mlu0 --device /dev/mlu1 --ulimit memlock=-1 --ulimit stack=67108864:67108864 --shm-size 1g"
        " --gpus '\"device=0,2\"' -v /usr/local/bin:/usr/local/bin:ro --env=NCCL_DEBUG=INFO"
        " -e EMPTY= --privileged=false -m 64g"
    )
    assert many == ContainerOptions(
        gpus="device=0,2",
        devices=("/dev/mlu0", "/dev/mlu1"),
        ulimits=(Ulimit(name="memlock", soft=-1, hard=-1), Ulimit(name="stack", soft=67108864, hard=67108864)),
        volumes=(Volume(source="/usr/local/bin", target="/usr/local/bin", read_only=True),),
        environment={"NCCL_DEBUG": "INFO", "EMPTY": ""},
        shm_size=1 << 30,
        memory=64 << 30,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--gpu all", "unknown container option '--gpu'; did you mean '--gpus'?"),
        ("--network=host", "unknown container option '--network'; "),
        ("ubuntu:22.04", "unknown container option"),
        ("-it", "unknown container option '-it'"),
        ("; rm -rf /", "unknown container option ';'"),
        ("--gpus", "container option --gpus needs a value"),
        ("--gpus all --gpus 2", "--gpus is given twice"),
        ("--gpus some", "--gpus takes 'all', a count or device=0,1, not 'some'"),
        ("--gpus 0", "--gpus takes"),
        ("--gpus '1\n'", "--gpus takes"),
        ("--shm-size big", "a size such as"),
        ("--shm-size 0", "is zero bytes"),
        ("--memory lots", "a size such as"),
        ("-m 1g --memory 2g", "--memory is given twice"),
        ("--ulimit memlock", "--ulimit takes name=soft[:hard], not 'memlock'"),
        ("--ulimit memlock=unlimited", "--ulimit takes"),
        ("-v data:/data", "-v takes /host/path:/container/path[:ro], not 'data:/data'"),
        ("-v /data", "-v takes"),
        ("-v /a:/b:rx", "-v takes"),
        ("-e HOME", "-e takes NAME=value, not 'HOME'"),
        ("-e =1", "-e takes"),
        ("--device 0", "--device takes /dev/name"),
        ("--privileged=perhaps", "--privileged takes =true, =false or nothing, not 'perhaps'"),
        ("--ipc=", "a value that is not empty"),
        ("--shm-size=1GB", "leaves open whether 1000 or 1024 is meant; write 1G or 1GiB"),
        ("-m 0", "is zero bytes"),
        ("-e 'A=1", "No closing quotation"),
    ],
)
def test_what_is_no_option_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_container_options(text)
