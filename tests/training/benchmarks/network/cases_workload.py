"""Several cases of the network benchmark in one start of its ranks: in argv, as JSON, arguments by case folder."""

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from training.benchmarks.driver.launch.rank import log_name
from training.benchmarks.driver.workload import process_group
from training.benchmarks.network.pytorch.suite import main


@contextlib.contextmanager
def _logging_in(folder: Path) -> Iterator[None]:
    """Sends stdout to the rank's log in `folder`, as driver.launch.rank does for a whole process."""
    folder.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    before = os.dup(1)
    with (folder / log_name(int(os.environ["RANK"]))).open("a") as log:
        os.dup2(log.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)


if __name__ == "__main__":
    cases: dict[str, list[str]] = json.loads(sys.argv[1])
    with (
        process_group.init("gloo", timeout_s=60) as group,
        patch.object(process_group, "init", lambda *_, **__: contextlib.nullcontext(group)),
    ):
        for each, arguments in cases.items():
            sys.argv = ["network", *arguments]
            with _logging_in(Path(each)):
                main()
