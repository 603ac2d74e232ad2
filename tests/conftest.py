"""Fixtures of all tests, and the rule for those marked `cluster`.

They need root, Docker's programs and sshd. Where that is missing they are skipped with a line that says what; with
CI=true a cluster test that is skipped, for whatever reason, is a failure.
"""

from __future__ import annotations

import gc
import importlib.abc
import os
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests import beside, budgets, tiers, workers
from tests.cluster import images, seed
from tests.cluster.bed import TestBed
from tests.cluster.engine import Engine
from tests.cluster.faulty_project import project
from tests.cluster.needs import missing
from tests.imports import ROOT, loads

# Between the hosts: ranks that only have to be there wait for the wire most of the time and leave the CPU to others.
WIRE = "100mbit"
FOLDER_VARIABLE = "CLUSTERDYNO_TESTBED_DIR"
UMASK = 0o022


NO_TORCH_OPTION = "--no-torch"


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of make quick and make test."""
    parser.addoption(NO_TORCH_OPTION, action="store_true", help="leave out what needs torch, and refuse to import it")
    parser.addoption(
        budgets.OPTION, action="store_true", help="name the files that take longer than tests/budgets.toml"
    )
    parser.addoption(budgets.SHORT_OPTION, action="store_true", help="leave out files whose budget is over the default")
    parser.addoption(beside.OPTION, type=Path, metavar="DIR", help="where it says how the making of images goes")


def pytest_configure(config: pytest.Config) -> None:
    """Register the budgets, keep torch out where that is asked for, and mend inherited signals."""
    plugin = budgets.Budgets(budgets.read(), checks=config.getoption(budgets.OPTION))
    config.pluginmanager.register(plugin, "budgets")
    folder = config.getoption(beside.OPTION)
    making = None if folder is None else beside.Images(folder)
    if making is not None:
        config.pluginmanager.register(making, "images")
    config.pluginmanager.register(workers.Workers(making), "workers")
    if config.getoption(NO_TORCH_OPTION):
        sys.meta_path.insert(0, _NoTorch())
    # Else torch's threads that wait for work spin, on cores that other tests need: four times the CPU seconds.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("XDG_STATE_HOME", str(images.CACHE / "state"))  # the key of journals, not the user's own
    tiers.load_profile()
    _restore_signals()


class _NoTorch(importlib.abc.MetaPathFinder):
    """Refuses to import torch. None in sys.modules would, too, but scipy takes what is there for torch."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise ModuleNotFoundError for torch and its parts; other finders look for anything else."""
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"{NO_TORCH_OPTION}: {fullname} is not to be imported", name=fullname)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether a file is not even imported: with NO_TORCH_OPTION what imports torch, with SHORT_OPTION a long one."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    is_long = config.getoption(budgets.SHORT_OPTION) and budgets.is_long(collection_path.relative_to(ROOT))
    return True if is_long or (config.getoption(NO_TORCH_OPTION) and loads(collection_path, "torch")) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what starts ranks with torch where NO_TORCH_OPTION is given."""
    if config.getoption(NO_TORCH_OPTION):
        left_out = [item for item in items if item.get_closest_marker("torch")]
        items[:] = [item for item in items if not item.get_closest_marker("torch")]
        config.hook.pytest_deselected(items=left_out)


def _restore_signals() -> None:
    """Let what the tests start find SIGINT and SIGHUP as a terminal gives them, also under nohup or in the background.

    An ignored signal is inherited over fork and exec; a handler that does nothing is not.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a cluster test on a machine that cannot run it; before its fixtures, mend the umask of this process.

    Commands that a test or a fixture calls here set it.
    """
    os.umask(UMASK)
    if item.get_closest_marker("cluster") is not None:
        lacking = missing()
        if lacking:
            pytest.skip(f"cluster tests need {'; '.join(lacking)}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without a look for garbage, and let later looks pass over what stays to the end: half the CPU seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn the skip of a cluster test into a failure where CI=true."""
    report = yield
    skipped = report.skipped and not hasattr(report, "wasxfail")
    if skipped and item.get_closest_marker("cluster") is not None and os.environ.get("CI") == "true":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"CI=true, and this cluster test did not run: {reason}"
    return report


def testbed_folder() -> Path:
    """Where the session's hosts live, used by one process at a time: each worker of `pytest -n` has hosts of its own.

    It lies in $CLUSTERDYNO_TESTBED_DIR or .cache/testbed.
    """
    folder = Path(os.environ.get(FOLDER_VARIABLE) or images.CACHE / "testbed")
    return folder / os.environ.get("PYTEST_XDIST_WORKER", "")


@pytest.fixture
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def testbed() -> Iterator[TestBed]:
    """Two hosts, node1 and node2, with Docker engines and the tests' images; up once a session, when first needed.

    A test that breaks something of them mends it.
    """
    with TestBed(2, testbed_folder() / "bed", images=True) as bed:
        for host in bed.hosts:
            host.remove_containers()
            for other in bed.hosts:
                if other is not host:
                    host.impair(rate=WIRE, peer=other)
        yield bed


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository with the benchmarks of the tests; nobody changes it."""
    return project(tmp_path_factory.mktemp("root") / "project")


@pytest.fixture(scope="session")
def docker_engine() -> Iterator[Engine]:
    """A Docker engine of its own on this machine's file system and network, without hosts, with the tests' images."""
    engine = Engine(testbed_folder() / "engine")
    seed.plant(engine.data)
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@pytest.fixture(scope="session")
def wheelhouse() -> Path:
    """The folder of the workloads' wheels for images that are built without an index."""
    return images.make_wheelhouse()
