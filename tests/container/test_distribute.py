"""Images on real engines: built, found, saved once and loaded elsewhere; what fails says why."""

import fcntl
import json
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from docker import APIClient

import vendors
from container import distribute
from container.distribute import prune, transfer
from container.engine_images import (
    DistributeError,
    ImageBuildError,
    ImageLoadError,
    ImagePullError,
    ImageState,
    build,
    find,
    image_state,
    outdated,
    pull,
)
from container.image import LABEL_BASE, ImageSpec, PackageSource, image_spec
from run_benchmarks.plan.cache import hashes_of
from tests.cluster.engine import Engine, start_engine
from tests.cluster.images import BASE_IMAGE

pytestmark = pytest.mark.cluster

REPOSITORY = Path(vendors.__file__).parents[1]
UNPRIVILEGED = "1234:1234"


class Said:
    """A progress callback that remembers."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.fractions: list[float] = []

    def __call__(self, message: str, fraction: float | None) -> None:
        self.messages.append(message)
        if fraction is not None:
            self.fractions.append(fraction)

    def matching(self, text: str) -> list[str]:
        return [message for message in self.messages if text in message]


def connect(engine: Engine) -> APIClient:
    return APIClient(base_url=f"unix://{engine.socket}", version="auto")


@pytest.fixture
def client(docker_engine: Engine) -> Iterator[APIClient]:
    api = connect(docker_engine)
    yield api
    api.close()


@pytest.fixture
def second(tmp_path: Path) -> Iterator[APIClient]:
    """An engine without any image."""
    engine = start_engine(tmp_path / "second")
    try:
        api = connect(engine)
        yield api
        api.close()
    finally:
        engine.stop(purge=True)


@pytest.fixture
def dead(tmp_path: Path) -> APIClient:
    """A client of an engine that is not there."""
    return APIClient(base_url=f"unix://{tmp_path}/nobody.sock", version="1.41")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ImageSpec:
    """An image that builds in a second: the base image and one line that runs."""
    return small_spec(tmp_path, monkeypatch, 'RUN ["python3", "-c", "print(\'built\', 6 * 7)"]')


def small_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> ImageSpec:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(vendors, "__path__", [str(Path(vendors.__file__).parent), str(tmp_path)])
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "adapter.py").touch()
    # The folder of the test makes the content this test's own: no layer of an earlier run is found in the cache.
    template = f"FROM {{{{ base_image }}}}\nENV TEST={tmp_path}\n{line}\n"
    (tmp_path / "small" / "small.j2").write_text(template)
    parameters = replace(vendors.load("cpu").images["pytorch"], template="small.j2")
    vendor = replace(vendors.load("cpu"), name="small", images={"pytorch": parameters})
    return image_spec(vendor, "pytorch", base_image=BASE_IMAGE, hashes_of=hashes_of)


def test_build_streams_its_log_and_labels_the_image(client: APIClient, small: ImageSpec) -> None:
    assert find(client, small.tag) is None
    said = Said()
    image = build(client, small, said)
    assert find(client, small.tag) == image
    assert said.matching("built 42")
    assert all(0 <= fraction <= 1 for fraction in said.fractions)
    inspected = client.inspect_image(small.tag)  # type: ignore[no-untyped-call]
    assert inspected["Config"]["Labels"]["org.clusterdyno.content-hash"] == small.content_hash
    client.remove_image(small.tag)


@pytest.mark.nightly
def test_an_image_is_outdated_once_its_base_s_name_stands_for_another(
    client: APIClient, second: APIClient, small: ImageSpec, tmp_path: Path
) -> None:
    base = "clusterdyno-test/base:latest"
    name, tag = base.split(":")
    assert client.tag(BASE_IMAGE, name, tag)
    spec = replace(small, base_image=base, dockerfile=small.dockerfile.replace(BASE_IMAGE, base))
    assert image_state(client, spec.tag, spec) == ImageState(image=None, base=find(client, base))
    assert image_state(client, spec.tag, None) == ImageState(image=None)
    build(client, spec, Said())
    built = image_state(client, spec.tag, spec)
    assert built.image is not None and built.image.label(LABEL_BASE) == built.base == find(client, BASE_IMAGE)
    assert transfer(client, {"second": second}, spec.tag, tmp_path / "spool", Said(), 1) == {}

    def found(**engines: APIClient) -> tuple[str | None, set[str]]:
        states = {name: image_state(each, spec.tag, spec) for name, each in engines.items()}
        builder, wrong = outdated(states, spec)
        return builder, set(wrong)

    assert image_state(second, spec.tag, spec).base is None
    assert found(second=second, first=client) == ("first", set())
    client.tag(small_base(client, small), name, tag)
    assert found(second=second, first=client) == ("first", {"first", "second"})
    build(client, spec, Said())
    assert found(first=client) == ("first", set())
    assert found(second=second) == (None, set())
    repository, _, version = spec.tag.rpartition(":")
    second.import_image_from_data(b"\0" * 1024, repository=repository, tag=version)
    assert found(second=second) == (None, {"second"}), "it bears the tag, and no recipe made it"
    for image in (spec.tag, base, small.tag):
        client.remove_image(image, force=True)


def small_base(client: APIClient, small: ImageSpec) -> str:
    """Another image than the base image."""
    build(client, small, Said())
    return small.tag


def test_a_failed_build_shows_the_end_of_its_log(
    client: APIClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import sys, time; [print('line', n) for n in range(99)];"
    code += "print('li', end=''); time.sleep(1); print('ne 99'); sys.exit(7)"  # passed on in two pieces
    spec = small_spec(tmp_path, monkeypatch, f'RUN ["python3", "-u", "-c", "{code}"]')
    with pytest.raises(ImageBuildError) as failure:
        build(client, spec, Said())
    error = failure.value
    assert "returned a non-zero code: 7" in error.reason
    assert len(error.log) == 30
    assert "line 99" in error.log
    assert "line 60" not in error.log
    assert "  | line 99" in str(error)
    assert find(client, spec.tag) is None


def test_a_context_that_cannot_be_made_is_a_failed_build(client: APIClient, small: ImageSpec) -> None:
    missing = replace(small.files[0], path=Path("/nonexistent/file"))
    with pytest.raises(ImageBuildError, match="/nonexistent/file"):
        build(client, replace(small, files=(missing,)), Said())


def test_a_registry_that_is_not_there(client: APIClient) -> None:
    with pytest.raises(ImagePullError, match=r"pulling 127\.0\.0\.1:9/nobody/nothing:1: "):
        pull(client, "127.0.0.1:9/nobody/nothing:1", Said())


def test_one_save_many_loads_and_a_bad_target_alone_fails(
    client: APIClient, second: APIClient, dead: APIClient, small: ImageSpec, tmp_path: Path
) -> None:
    image = build(client, small, Said())
    said = Said()
    failed = transfer(
        client, {"second": second, "dead": dead, "source": client}, small.tag, tmp_path / "spool", said, 2
    )
    assert list(failed) == ["dead"]
    assert isinstance(failed["dead"], ImageLoadError)
    assert "does not answer" in str(failed["dead"])
    assert find(second, small.tag) == image
    assert said.matching(f"loading {small.tag} into second")
    assert not said.matching("into source"), "the image was there already"
    assert all(0 <= fraction <= 1 for fraction in said.fractions)
    (spooled,) = (tmp_path / "spool").iterdir()
    assert spooled.name.startswith(f"{image.removeprefix('sha256:')}-")

    again = Said()
    assert transfer(client, {"second": second}, small.tag, tmp_path / "spool", again, 1) == {}
    assert again.messages == [], "nothing to do, nothing done"
    second.remove_image(small.tag)
    assert transfer(client, {"second": second}, small.tag, tmp_path / "spool", again, 1) == {}
    assert again.matching("was saved before")
    assert find(second, small.tag) == image
    client.remove_image(small.tag)


@pytest.mark.nightly
def test_a_damaged_archive_is_an_error_of_the_target(
    client: APIClient, second: APIClient, small: ImageSpec, tmp_path: Path
) -> None:
    build(client, small, Said())
    spool = tmp_path / "spool"
    spool.mkdir()
    assert transfer(client, {"second": second}, small.tag, spool, Said(), 1) == {}
    second.remove_image(small.tag)
    (archive,) = spool.iterdir()
    archive.write_bytes(b"not a tar" * 1000)
    failed = transfer(client, {"second": second}, small.tag, spool, Said(), 1)
    assert str(spool) in str(failed["second"]) or "expected" in str(failed["second"])
    assert find(second, small.tag) is None
    client.remove_image(small.tag)


def test_a_source_without_the_image(client: APIClient, dead: APIClient, tmp_path: Path) -> None:
    with pytest.raises(DistributeError, match="the source engine has no image nobody/nothing:1"):
        transfer(client, {"dead": dead}, "nobody/nothing:1", tmp_path, Said(), 1)
    with pytest.raises(ValueError, match="concurrency 0"):
        transfer(client, {}, "nobody/nothing:1", tmp_path, Said(), 0)


def test_an_interruption_leaves_no_half_archive_and_no_thread(
    client: APIClient, second: APIClient, small: ImageSpec, tmp_path: Path
) -> None:
    build(client, small, Said())

    def interrupt(message: str, fraction: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        transfer(client, {"second": second}, small.tag, tmp_path / "spool", interrupt, 1)
    assert list((tmp_path / "spool").iterdir()) == []
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("image")]
    assert find(second, small.tag) is None
    client.remove_image(small.tag)


def run_in(client: APIClient, image: str, argv: list[str]) -> tuple[int, str]:
    """Exit code and output of a command in the image, as a user without rights, with the code mounted read-only."""
    host = client.create_host_config(binds=[f"{REPOSITORY}:/code:ro"], network_mode="host")
    container = client.create_container(
        image,
        argv,
        user=UNPRIVILEGED,
        working_dir="/code",
        host_config=host,
        environment={"PYTHONDONTWRITEBYTECODE": "1"},
    )
    try:
        client.start(container)
        code = int(client.wait(container)["StatusCode"])
        return code, client.logs(container).decode()
    finally:
        client.remove_container(container, force=True)


def test_the_cpu_image_runs_torch_and_the_monitor(client: APIClient, wheelhouse: Path) -> None:
    vendor = vendors.load("cpu")
    packages = PackageSource(wheelhouse=wheelhouse)
    spec = image_spec(vendor, "pytorch", base_image=BASE_IMAGE, packages=packages, hashes_of=hashes_of)
    if find(client, spec.tag) is None:
        build(client, spec, Said())
    code, output = run_in(
        client, spec.tag, [spec.python, "-c", "import torch; print(torch.ones(3).sum().item(), torch.__version__)"]
    )
    assert (code, output.split()[0]) == (0, "3.0"), output
    code, output = run_in(client, spec.tag, ["python", "-m", "monitors", "--help"])
    assert code == 0, output
    assert "--max_seconds" in output


LIKE_NGC = """
import pathlib
site = pathlib.Path("/usr/local/lib/python3.11/dist-packages")
for name, version in (("torch", "2.10.0a0+b4e4ee8.nv25.12"), ("numpy", "1.26.4")):
    (site / name).mkdir(parents=True)
    (site / name / "__init__.py").write_text(f"__version__ = {version!r}")
    info = site / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
constraints = pathlib.Path("/etc/pip/constraint.txt")
constraints.parent.mkdir()
constraints.write_text("numpy==1.26.4\\n")
"""


@pytest.mark.nightly
def test_the_nvidia_image_keeps_the_bases_torch(
    client: APIClient, wheelhouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a stand-in for NGC's image: a torch of its own build and pinned packages outside any virtual environment."""
    base = small_spec(tmp_path, monkeypatch, "RUN " + json.dumps(["python3", "-c", LIKE_NGC]))
    build(client, base, Said())
    packages = PackageSource(wheelhouse=wheelhouse)
    nvidia = partial(
        image_spec, vendors.load("nvidia"), "pytorch", base_image=base.tag, packages=packages, hashes_of=hashes_of
    )
    spec = nvidia()
    said = Said()
    build(client, spec, said)
    assert said.matching("torch: keeping the base image's 2.10.0a0+b4e4ee8.nv25.12 (asked for: torch==2.13.0)")
    code = "import torch, numpy, psutil, pydantic, pynvml; print(torch.__version__, numpy.__version__)"
    assert run_in(client, spec.tag, [spec.python, "-c", code]) == (0, "2.10.0a0+b4e4ee8.nv25.12 1.26.4\n")

    case = tmp_path / "requirements.txt"
    case.write_text("torch==2.13.0\n")
    replacing = nvidia(requirements=(case,))
    with pytest.raises(ImageBuildError) as failure:
        build(client, replacing, Said())
    assert "torch==2.10.0a0+b4e4ee8.nv25.12" in str(failure.value), "a case may not replace it either"
    client.remove_image(spec.tag)
    client.remove_image(base.tag)


def archive(spool: Path, name: str, size: int, age: int) -> Path:
    path = spool / name
    path.write_bytes(bytes(size))
    os.utime(path, (1e9 - age, 1e9 - age))
    return path


def test_the_spool_folder_keeps_the_newest_archives_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(distribute, "SPOOL_BYTES", 100)
    oldest, old, new = (archive(tmp_path, f"{name}.tar", 45, age) for age, name in ((3, "c"), (2, "b"), (1, "a")))
    killed, other = archive(tmp_path, ".saving-x", 10, 0), archive(tmp_path, "notes.txt", 500, 9)
    gone = tmp_path / "gone.tar"  # as one that another process removes after it was listed
    gone.symlink_to("nowhere")
    prune(tmp_path)
    gone.unlink()
    assert new.exists() and old.exists() and other.exists()
    assert not oldest.exists() and not killed.exists()
    huge = archive(tmp_path, "d.tar", 500, 0)
    with old.open("rb") as held, (tmp_path / ".saving-y").open("wb") as saving:
        fcntl.flock(held, fcntl.LOCK_SH)
        fcntl.flock(saving, fcntl.LOCK_EX)
        prune(tmp_path)
        assert huge.exists() and old.exists() and (tmp_path / ".saving-y").exists()
        assert not new.exists(), "beyond the limit, and nobody has it in hand"
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.tar", "notes.txt"]
