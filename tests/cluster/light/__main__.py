"""A benchmark whose ranks make steps that take no work until one of them breaks, for tests of all that is around ranks;
`project` of tests.cluster.faulty_project makes it one of the repository's.
"""

import os
import sys
import time
from pathlib import Path

from protocol import pulse
from protocol.arguments import parse_arguments
from protocol.case_file import settings_of, submission
from protocol.perflog import Event, PerfLogger

from ..faulty.faults import strike
from .pytorch.config import Config

GO_ON = "go_on"


def main() -> None:
    """Entry point."""
    begin = time.perf_counter()
    arguments = parse_arguments("light", sys.argv[1:])
    config, case_sha256 = settings_of(arguments, "light", "pytorch", Config)
    rank = int(os.environ["RANK"])
    logger = PerfLogger(rank)
    info = submission(arguments, "light", "pytorch", config, case_sha256)
    logger.log(Event.SUBMIT_INFO, info.model_dump(mode="json"))
    logger.log(Event.INIT_START)
    logger.log(Event.INIT_END)
    logger.log(Event.TRAIN_START, {"total_steps": config.steps})
    logger.log(Event.STEP_BEGIN, {"step": 1})
    for step in range(1, config.steps + 1):
        pulse.step()
        if strike(config, rank, step):
            return
        time.sleep(config.pause)
    while config.waits and not (_log_folder() / GO_ON).exists():
        pulse.step()
        time.sleep(config.pause)
    logger.log(Event.STEP_END, {"step": 1})
    logger.log(Event.TRAIN_END)
    logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin})


def _log_folder() -> Path:
    """A rank's standard output is a file there."""
    return Path("/proc/self/fd/1").readlink().parent


if __name__ == "__main__":
    main()
