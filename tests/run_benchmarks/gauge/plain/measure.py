"""A rank of the gauge: it logs the number that its settings have."""

import os
import sys

from protocol.arguments import parse_arguments
from protocol.case_file import settings_of, submission
from protocol.perflog import Event, PerfLogger

from .config import Config


def main(framework: str = "plain") -> None:
    """Log a round of two steps."""
    arguments = parse_arguments("gauge", sys.argv[1:])
    config, case_sha256 = settings_of(arguments, "gauge", framework, Config)
    logger = PerfLogger(int(os.environ["RANK"]))
    info = submission(arguments, "gauge", framework, config, case_sha256)
    logger.log(Event.SUBMIT_INFO, info.model_dump(mode="json") | {"device_name": "Gauge 3000"})
    logger.log(Event.INIT_START)
    logger.log(Event.INIT_END)
    logger.log(Event.TRAIN_START)
    for step in (1, 2):
        logger.log(Event.STEP_BEGIN, {"step": step})
        logger.log(Event.STEP_END, {"step": step, "turns": step * config.turns_per_second})
    logger.log(Event.TRAIN_END)
    logger.log(Event.FINISHED, {"e2e_time": 0.1, "correct": "pass", "turns(tps)": config.turns_per_second})


if __name__ == "__main__":
    main()
