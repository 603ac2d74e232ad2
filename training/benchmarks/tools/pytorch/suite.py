"""Runs each tool on all hosts at once, or between pairs of them; what one host's output says is gathered on all."""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from protocol.perflog import Event
from training.benchmarks.driver.workload.run_context import open_run
from training.benchmarks.tools.pytorch.config import Config
from training.benchmarks.tools.pytorch.host import INSPECTOR, alone, told
from training.benchmarks.tools.pytorch.meetings import BETWEEN_HOSTS
from training.benchmarks.tools.table import TOOLS


def main() -> None:
    """Entry of every rank."""
    begin = time.perf_counter()
    with open_run("tools", "pytorch", Config) as run:
        config, group, logger = run.config, run.group, run.logger
        logger.log(Event.INIT_END)
        names = [*config.tools, *([INSPECTOR] if config.inspector_folder else [])]
        logger.log(Event.TRAIN_START, {"total_steps": len(names)})
        results = []
        for step, name in enumerate(names, start=1):
            place = {"step": step, "total_steps": len(names), "tool": name}
            logger.log(Event.STEP_BEGIN, place)
            if name in TOOLS and (between := BETWEEN_HOSTS.get(TOOLS[name].scope)) is not None:
                every = group.gathered(told(partial(between, name, config, group)))
            else:
                every = group.gathered(told(partial(alone, name, config)))
            results.append(_result(name, every))
            logger.log(Event.STEP_END, place | results[-1])
        logger.log(Event.TRAIN_END)
        counts = {key: sum(len(each[key]) for each in results) for key in ("figures", "failed", "not_run")}
        logger.log(Event.FINISHED, {"e2e_time": time.perf_counter() - begin, **counts})


def _result(name: str, every: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The STEP_END of a tool: figures by part, each of all hosts by rank; failures and what is not run, by rank."""
    tool = TOOLS.get(name)
    unit, better = (tool.unit, tool.better) if tool else ("us", "higher")
    of_hosts = [host.get("figures", {}) for host in every]
    figures = [
        {
            "test": f"{name} {part}".strip(),
            "unit": unit,
            "better": better,
            "values_of_ranks": [figures.get(part) for figures in of_hosts],
        }
        for part in dict.fromkeys(part for figures in of_hosts for part in figures)
    ]
    return {
        "figures": figures,
        **{key: _by_rank(every, key) for key in ("failed", "silent", "told")},
        "passed": [host.get("passed", 0) for host in every],
        "not_run": {
            str(rank): {"why": host["not_run"], "is_missing": host["is_missing"]}
            for rank, host in enumerate(every)
            if "not_run" in host
        },
    }


def _by_rank(every: Sequence[dict[str, Any]], key: str) -> dict[str, Any]:
    """The values of a key that hosts send, by rank, without empty ones."""
    return {str(rank): host[key] for rank, host in enumerate(every) if host.get(key)}
