"""A plan as people may see it."""

from __future__ import annotations

from typing import Any

from run_benchmarks.plan.plan import Plan
from training.benchmarks.driver.protocol.masking import mask_argv, mask_config, mask_environment


def masked(plan: Plan) -> dict[str, Any]:
    """The plan as JSON for people, without tokens, passwords and keys."""
    data = plan.model_dump(mode="json")
    for case in data["cases"]:
        case["config"] = mask_config(case["config"])
        for node in (node for each in case["rounds"] for node in each["nodes"]):
            node["options"]["environment"] = mask_environment(node["options"]["environment"])
            for task in (node["workload"], node["monitor"]):
                task["argv"], task["environment"] = mask_argv(task["argv"]), mask_environment(task["environment"])
    return data
