"""What the disk of a test's Docker engine begins with: the base image and the image of the tests' cases.

Built once, by the code that run.py builds with, in an engine of its own; every other engine gets a copy of its folder.
To build, save, send, load and unpack a gigabyte for each took about a fifth of the time of the cluster tests.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import container
import vendors
from container.engine_images import build, find
from container.image import ImageSpec, PackageSource, image_spec
from run_benchmarks.plan.cache import hashes_of
from tests.cluster import images
from tests.cluster.engine import start_engine
from tests.cluster.lock import FolderLock
from tests.cluster.system import TestBedError, run

if TYPE_CHECKING:
    from tests.cluster.host import ClusterHost

VENDOR, FRAMEWORK = "cpu", "pytorch"
DATA = "docker"
STAMP = "seed"
KEPT = "clusterdyno-test/kept:1"
# Layers are never written to again, so that engines share their files; everything else of an engine's folder is copied.
LAYERS = "overlay2"
MAKE_SECONDS = 900.0


def case_image() -> ImageSpec:
    """The image of the tests' cases on CPU, as run.py describes it for a test bed's test_conf.py."""
    return image_spec(
        vendors.load(VENDOR),
        FRAMEWORK,
        base_image=images.BASE_IMAGE,
        packages=PackageSource(wheelhouse=images.make_wheelhouse()),
        hashes_of=hashes_of,
    )


def plant(data_root: Path) -> None:
    """Fill the folder of an engine that is down with both images, in place of what it holds; once for each recipe.

    Raises:
        TestBedError: base image or wheelhouse could not be made or the engine did not come up.
        DistributeError: the image could not be built.
    """
    seed = make()
    if _stamp(data_root) == seed.name:
        return
    shutil.rmtree(data_root, ignore_errors=True)
    data_root.mkdir(parents=True, mode=0o710)
    for entry in sorted((seed / DATA).iterdir()):
        shared = entry.name == LAYERS and entry.stat().st_dev == data_root.stat().st_dev
        run(["cp", "--archive", *(["--link"] if shared else []), entry, data_root], timeout=300)
    (data_root / STAMP).write_text(seed.name)


def make() -> Path:
    """The folder of the engine that all others are copies of; made the first time (about a minute).

    Raises:
        TestBedError, DistributeError: as `plant`.
    """
    spec = case_image()
    folder = images.CACHE / f"engine-{_recipe(spec)}"
    lock = FolderLock(images.CACHE / "engine.lock")
    lock.acquire(timeout=MAKE_SECONDS)
    try:
        if not folder.is_dir():
            for outdated in images.CACHE.glob("engine-*"):
                shutil.rmtree(outdated)
            _build(spec, folder)
    finally:
        lock.release()
    return folder


@contextmanager
def forgotten(hosts: Sequence[ClusterHost]) -> Iterator[str]:
    """The tag of the cases' image, which these hosts have no more; they keep its layers, so that a build is short."""
    tag = case_image().tag
    clients = [host.connect_docker(timeout=300) for host in hosts]
    try:
        for client in clients:
            client.images.get(tag).tag(*KEPT.split(":"))
            client.images.remove(tag)
        yield tag
    finally:
        for client in clients:
            client.images.get(KEPT).tag(*tag.split(":"))
            client.images.remove(KEPT)
            client.close()


def _recipe(spec: ImageSpec) -> str:
    """Twelve hexadecimal digits of all that decides what is in the engine; the code that builds is part of it."""
    digest = hashlib.sha256(f"{images.recipe_hash()} {spec.content_hash}".encode())
    for source in sorted(Path(container.__path__[0]).rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _build(spec: ImageSpec, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="engine-", dir=folder.parent) as temporary:
        engine = start_engine(Path(temporary))
        try:
            images.load_base_image(engine.socket)
            client = engine.connect(timeout=600)
            try:
                build(client.api, spec, lambda message, fraction: print(message, file=sys.stderr, flush=True))
                if find(client.api, spec.tag) is None:
                    raise TestBedError(f"the engine has no image {spec.tag} after its build")
            finally:
                client.close()
        finally:
            engine.stop()
        (Path(temporary) / "made").mkdir()
        (Path(temporary) / DATA).rename(Path(temporary) / "made" / DATA)
        (Path(temporary) / "made").rename(folder)


def _stamp(data_root: Path) -> str | None:
    try:
        return (data_root / STAMP).read_text()
    except FileNotFoundError:
        return None
