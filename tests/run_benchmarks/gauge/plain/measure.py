"""A rank of the gauge: it logs the number that its settings have."""

import os
import sys

from training.benchmarks.driver.protocol.arguments import parse_arguments
from training.benchmarks.driver.protocol.case_file import settings_of
from training.benchmarks.driver.protocol.perflog import Event, PerfLogger, SubmitInfo

from .config import Config


def main(framework: str = "plain") -> None:
    """Log a round of two steps."""
    arguments = parse_arguments("gauge", sys.argv[1:])
    config, case_sha256 = settings_of(arguments, "gauge", framework, Config)
    logger = PerfLogger(int(os.environ["RANK"]))
    info = SubmitInfo(
        vendor=arguments.vendor,
        model="gauge",
        framework=framework,
        case=arguments.case,
        case_sha256=case_sha256,
        config=config.model_dump(mode="json"),
        world_size=int(os.environ["WORLD_SIZE"]),
        nnodes=int(os.environ["GROUP_WORLD_SIZE"]),
        torch="",
        backend="",
    )
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
