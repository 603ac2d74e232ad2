"""Which worker of `pytest -n` runs which file: few make hosts, and while their tests wait others compute.

A pytest plugin of tests/conftest.py for `--dist loadfile`. A worker keeps a bed of hosts to its last test, so that all
tests of hosts cost as many beds as there are workers that run some. They wait most of their time, others compute most
of theirs: on two cores two of each kind are busy all the time, four of one kind leave a core idle or overloaded.
Until what hosts are made of is there (tests/beside.py), every worker takes files without them.

Each worker collects all tests. From a fresh clone half of that is pytest's rewriting of their asserts, which lands in
bytecode files: each begins with another share of the files and finds the others' written.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.beside import Images
from tests.imports import ROOT

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.workermanage import WorkerController

# One worker of so many takes files with hosts last.
COMPUTES = 2
MARK = re.compile(r"^(?:pytestmark = .*|@)pytest\.mark\.cluster\b", re.MULTILINE)


@functools.cache
def has_hosts(file: Path) -> bool:
    """Whether a file of tests names the marker of those that have hosts with Docker engines."""
    return MARK.search(file.read_text(encoding="utf-8")) is not None


class Scheduler(LoadFileScheduling):  # type: ignore[misc]
    """Gives a worker the next file of its kind, and one of the other kind once there is none."""

    def __init__(self, config: pytest.Config, log: Producer | None, images: Images | None, root: Path = ROOT) -> None:
        super().__init__(config, log)
        self._images, self._root = images, root

    def _assign_work_unit(self, node: WorkerController) -> None:
        wants_hosts = self._takes_hosts(node) and (self._images is None or self._images.ended())
        fitting = (file for file in self.workqueue if has_hosts(self._root / file) == wants_hosts)
        self.workqueue.move_to_end(next(fitting, next(iter(self.workqueue))), last=False)
        super()._assign_work_unit(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Keep the files that a worker had ended before it died from being given out again, without tests."""
        files = self.assigned_work[node]
        for file in [file for file, tests in files.items() if all(tests.values())]:
            del files[file]
        found: str | None = super().remove_node(node)
        return found

    def _takes_hosts(self, node: WorkerController) -> bool:
        """Workers are gw0, gw1, ...; one that died is followed by another with a new number."""
        count: int = self.numnodes
        return int(node.gateway.id.removeprefix("gw")) % count < count - max(1, count // COMPUTES)


def share(files: Sequence[Path], number: int, count: int) -> Sequence[Path]:
    """What worker `number` of `count` imports first: each file is in the share of one."""
    return files[number * len(files) // count : (number + 1) * len(files) // count]


def import_first(files: Sequence[Path], root: Path) -> None:
    """Import files below `root`. One that cannot be imported is told of when it is collected."""
    for file in files:
        # A module may leave by SystemExit, or skip itself, which is no Exception either.
        with contextlib.suppress(Exception, SystemExit, pytest.skip.Exception):
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))


class Workers:
    """The plugin. images: what makes the hosts' images, where that is done beside the tests."""

    def __init__(self, images: Images | None) -> None:
        self._images = images

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> None:
        """Import this worker's share of the folders that are collected."""
        config = session.config
        given: dict[str, str | int] | None = getattr(config, "workerinput", None)
        if given is None:
            return
        folders = [config.invocation_params.dir / argument for argument in config.args]
        found = sorted(file for folder in folders for file in folder.rglob("test_*.py") if file.is_relative_to(ROOT))
        ignores = functools.cache(lambda path: config.hook.pytest_ignore_collect(collection_path=path, config=config))
        folders_of = {file: [file, *(each for each in file.parents if each.is_relative_to(ROOT))] for file in found}
        files = [file for file, within in folders_of.items() if not any(map(ignores, within))]
        number = int(str(given["workerid"]).removeprefix("gw")) % int(given["workercount"])
        import_first(share(files, number, int(given["workercount"])), ROOT)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Producer) -> Scheduler | None:
        """Replace xdist's own way to distribute whole files."""
        return Scheduler(config, log, self._images) if config.getoption("dist") == "loadfile" else None
