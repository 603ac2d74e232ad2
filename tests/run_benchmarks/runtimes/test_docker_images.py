"""Which of the hosts' images count, and how the way of an image is told."""

import logging
from pathlib import Path

import pytest

import vendors
from container.engine_images import ImageState
from container.image import LABEL_BASE, LABEL_HASH, ImageIdentity, ImageSpec, image_spec
from run_benchmarks.console.console import LOG
from run_benchmarks.errors import TaskError
from run_benchmarks.plan.cache import hashes_of
from run_benchmarks.runtimes.docker_images import Sayer, _usable
from run_benchmarks.state.interruption import Interruption


def test_the_log_has_each_line_of_a_build_and_a_transfer_s_line_once(caplog: pytest.LogCaptureFixture) -> None:
    say = Sayer("node1", Interruption("clean").check)
    with caplog.at_level(logging.DEBUG, logger=LOG.name):
        say("Step 1/2", None)
        say("Step 2/2", None)
        for chunk in range(1000):
            say("saving", chunk / 1000)
    assert [record.getMessage() for record in caplog.records] == [
        "node1: Step 1/2",
        "node1: Step 2/2",
        "node1: saving",
    ]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageSpec:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    cpu = vendors.load("cpu")
    return image_spec(cpu, "pytorch", base_image="base:1", hashes_of=hashes_of)


def image(number: int, labels: dict[str, str]) -> ImageIdentity:
    return ImageIdentity(f"sha256:{number}", (f"layer{number}",), tuple(sorted(labels.items())), 1)


def test_all_hosts_use_one_image_and_one_of_its_recipe(spec: ImageSpec, caplog: pytest.LogCaptureFixture) -> None:
    labels = {LABEL_HASH: spec.content_hash, LABEL_BASE: "sha256:base"}
    good, other, forged = image(1, labels), image(2, labels), image(3, {**labels, LABEL_HASH: "0"})
    old = image(4, {**labels, LABEL_BASE: "sha256:old"})
    # An engine with another store counts ids in another way.
    same = ImageIdentity("sha256:9", good.layers, good.labels, 1)
    held = {"a": None, "b": forged, "c": old, "d": good, "e": other, "f": same}
    states = {name: ImageState(image, "sha256:base" if name == "d" else None) for name, image in held.items()}
    with caplog.at_level(logging.WARNING, logger=LOG.name):
        builder, there = _usable(spec.tag, spec, states, None)
    assert builder == "d"
    assert there == {"a": None, "b": None, "c": None, "d": good, "e": None, "f": same}
    assert [message.split(":")[0] for message in caplog.messages] == ["b", "c", "e"]
    assert "sha256:2 is there" not in caplog.text and "is sha256:2 there and sha256:1 on d" in caplog.messages[2]
    _, there = _usable(spec.tag, spec, states, other)
    assert {name for name, image in there.items() if image} == {"e"}, "what earlier rounds used"


def test_a_name_that_the_user_gave_stands_for_one_image() -> None:
    first, second = image(1, {}), image(2, {})
    states = {"a": ImageState(None), "b": ImageState(first), "c": ImageState(first)}
    assert _usable("mine:1", None, states, None) == (None, {"a": None, "b": first, "c": first})
    states["c"] = ImageState(second)
    with pytest.raises(TaskError, match="c: image mine:1 is sha256:2 there and sha256:1 on b: remove the wrong one"):
        _usable("mine:1", None, states, None)
