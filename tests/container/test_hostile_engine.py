"""What an engine says of an image leads to no file of the head node, and ends no run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from docker import APIClient

from container import distribute
from container.distribute import transfer
from container.engine_images import DistributeError, find, identity
from container.image import ImageIdentity
from run_benchmarks.errors import TaskError
from run_benchmarks.hosts.local import LocalHost
from run_benchmarks.hosts.outages import Patience
from run_benchmarks.runtimes.docker_images import _each

TAG = "cpu:1"


class Engine:
    """An engine that describes each image as `answer`, and of which every archive is `archive`."""

    timeout = 5

    def __init__(self, answer: object, archive: bytes = b"layers") -> None:
        self.answer, self.archive = answer, archive
        self.loaded: list[bytes] = []

    def inspect_image(self, tag: str) -> Any:
        return self.answer

    def get_image(self, tag: str, chunk_size: int) -> Iterator[bytes]:
        while True:
            yield self.archive
            if len(self.archive) < chunk_size:
                return

    def load_image(self, data: Any) -> Iterator[dict[str, Any]]:
        self.loaded.append(b"".join(data))
        return iter(())


def client(answer: object, archive: bytes = b"layers") -> APIClient:
    return cast(APIClient, Engine(answer, archive))


@pytest.mark.parametrize("kind", ["absolute", "upwards", "no name"])
def test_an_image_s_id_is_no_path(tmp_path: Path, kind: str) -> None:
    """It would replace an archive of the user, or send it to the other hosts."""
    spool, backup = tmp_path / "cache" / "spool", tmp_path / "backup.tar"
    spool.mkdir(parents=True)
    backup.write_bytes(b"the user's own")
    image = {"absolute": str(tmp_path / "backup"), "upwards": "sha256:../../backup", "no name": "sha256:"}[kind]
    source, target = client({"Id": image}), client({"Id": "sha256:other"})
    with pytest.raises(DistributeError, match="which is no id of an image"):
        transfer(source, {"node2": target}, TAG, spool, lambda *_: None, 1)
    assert backup.read_bytes() == b"the user's own" and list(spool.iterdir()) == []
    assert cast(Engine, target).loaded == []


def test_an_archive_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribute, "SPOOL_BYTES", 3 << 20)
    source = client({"Id": "sha256:" + "0" * 64}, b"x" * (1 << 20))
    with pytest.raises(DistributeError, match="has more than 3145728 bytes"):
        transfer(source, {"node2": client({"Id": "other"})}, TAG, tmp_path / "spool", lambda *_: None, 1)
    assert list((tmp_path / "spool").iterdir()) == []


@pytest.mark.parametrize("answer", [None, [], {}, {"Id": "1", "Size": "x"}, {"Id": "1", "Config": {"Labels": [1]}}, 7])
def test_a_description_that_is_none_is_an_error_of_its_host(
    tmp_path: Path, answer: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DistributeError, match="the engine's description of image cpu:1 cannot be read"):
        identity(client(answer), TAG)
    host = LocalHost("node1")
    monkeypatch.setattr(host, "docker", lambda: client(answer))
    with pytest.raises(TaskError, match="node1: image cpu:1: the engine's description of image cpu:1 cannot be read"):
        _each({"node1": host}, lambda engine: identity(engine, TAG), TAG, Patience())
    sound = client({"Id": "sha256:" + "0" * 64})
    failed = transfer(sound, {"node2": client(answer)}, TAG, tmp_path / "spool", lambda *_: None, 1)
    assert failed.keys() == {"node2"} and "cannot be read" in str(failed["node2"])


def test_images_that_differ_only_in_what_they_start_with_are_not_the_same() -> None:
    """ENV makes no layer: a name may stand for another algorithm of NCCL on another host."""
    image = {"Id": "1", "RootFS": {"Layers": ["sha256:a"]}, "Config": {"Env": ["NCCL_ALGO=Ring"], "Cmd": []}}
    ours = identity(client(image), TAG)
    same = identity(client({**image, "Id": "2", "Config": {"Env": ["NCCL_ALGO=Ring"], "Cmd": None}}), TAG)
    other = identity(client({**image, "Id": "3", "Config": {"Env": ["NCCL_ALGO=Tree"]}}), TAG)
    bare = [identity(client({"Id": image_id}), TAG) for image_id in ("4", "5")]
    assert ours and same and other and bare[0] and bare[1]
    assert ours.same(same) and not ours.same(other) and not bare[0].same(bare[1])


def test_labels_and_layers_are_text() -> None:
    image = {"Id": "1", "RootFS": {"Layers": [{"a": 1}]}, "Config": {"Labels": {"b": {}, "a": None}}}
    found = identity(client(image), TAG)
    assert isinstance(found, ImageIdentity) and found.layers == ("{'a': 1}",)
    assert found.labels == (("a", "None"), ("b", "{}"))
    assert find(client(image), TAG) == "1"
