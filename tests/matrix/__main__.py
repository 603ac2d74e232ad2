"""Installs and runs the project on stock Debian systems, and says at the end on which it works.

    python -m tests.matrix             # all of them
    python -m tests.matrix bookworm    # these alone

What is downloaded (a Debian by debootstrap, wheels by pip) lies in .cache afterwards. For a Python of which pip's index
has no CPU build of torch that is several gigabytes.
"""

import sys
import time

from tests.cluster import images
from tests.cluster.bed import TestBed
from tests.cluster.needs import missing
from tests.cluster.system import TestBedError
from tests.matrix import steps
from tests.matrix.userland import SUITES, Suite, Userland


def _try(suite: Suite) -> str:
    """What came of one suite, in a line."""
    begin = time.monotonic()
    try:
        with Userland(suite) as userland:
            steps.set_up(userland)
            python = userland.run(["python3", "-V"]).stdout.strip()
            steps.install_and_run(userland)
            with TestBed(2, images.CACHE / "matrix" / "bed", images=True) as bed:
                steps.run_on_hosts(userland, bed)
    except (steps.StepError, TestBedError) as error:
        return f"FAILED {suite.name}: {error}"
    return f"ok     {suite.name}, {python}: install, make run, a run on two hosts: {time.monotonic() - begin:.0f} s"


def main(names: list[str]) -> int:
    """Try the suites of these names, or all; returns the exit code."""
    unknown = [name for name in names if name not in SUITES]
    if unknown or missing():
        complaint = f"no suite {', '.join(unknown)}; known: {', '.join(SUITES)}" if unknown else "; ".join(missing())
        print(complaint, file=sys.stderr)
        return 2
    found = []
    for name in names or SUITES:
        found.append(_try(SUITES[name]))
        print(found[-1], flush=True)
    return 1 if any(line.startswith("FAILED") for line in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
