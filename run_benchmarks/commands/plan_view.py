"""Formats a plan for people."""

from typing import Any

from protocol.masking import mask_argv, mask_config, mask_environment
from run_benchmarks.commands.layout_view import LAYOUT_COLUMNS, layout_rows
from run_benchmarks.commands.tiers_view import TIER_COLUMNS, tier_rows
from run_benchmarks.console.terminal import print_table
from run_benchmarks.plan.plan import Plan

SETTING_COLUMNS = ("setting", "value", "from")


def masked(plan: Plan) -> dict[str, Any]:
    """The plan as JSON, without tokens, passwords and keys."""
    data = plan.model_dump(mode="json")
    for case in data["cases"]:
        case["config"] = mask_config(case["config"])
        for node in (node for each in case["rounds"] for node in each["nodes"]):
            node["options"]["environment"] = mask_environment(node["options"]["environment"])
            for task in (node["workload"], node["monitor"]):
                task["argv"], task["environment"] = mask_argv(task["argv"]), mask_environment(task["environment"])
    return data


def show_settings(plan: dict[str, Any]) -> None:
    """Print for each case of a masked plan its settings, the choice of `layout = "auto"` and the tiers of its hosts."""
    for case in plan["cases"]:
        print_table(f"{case['name']}: {case['config_file']}", SETTING_COLUMNS, setting_rows(case))
        if rows := layout_rows(case):
            print_table(f"{case['name']}: layout = 'auto'", LAYOUT_COLUMNS, rows)
        if tiers := tier_rows(case):
            print_table(f"{case['name']}: tiers by {case['config']['topology']}", TIER_COLUMNS, tiers)


def setting_rows(case: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Setting, value and origin of one case of a masked plan; the case's own settings first."""
    values = {**case, "repeat": len(case["rounds"])}
    own = [(key, repr(values[key]), origin) for key, origin in case["origins"].items()]
    of_config = [(key, repr(case["config"][key]), origin) for key, origin in case["config_origins"].items()]
    # If the benchmark leaves a setting open, the case's own row has the effective value.
    return own + [row for row in of_config if row[0] not in case["origins"]]
