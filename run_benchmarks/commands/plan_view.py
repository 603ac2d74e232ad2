"""Formats a plan for people."""

from collections.abc import Sequence
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


def settings_of_cases(plan: dict[str, Any]) -> list[dict[str, Any]]:
    """For each case of a masked plan its settings, the choice of `layout = "auto"` and the tiers of its hosts, as
    objects by column.
    """
    return [
        {
            "name": case["name"],
            "config_file": case["config_file"],
            "topology": case["config"].get("topology"),
            "settings": _objects(SETTING_COLUMNS, setting_rows(case)),
            "layout": _objects(LAYOUT_COLUMNS, layout_rows(case)),
            "tiers": _objects(TIER_COLUMNS, tier_rows(case)),
        }
        for case in plan["cases"]
    ]


def _objects(columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in rows]


def show_settings(cases: Sequence[dict[str, Any]]) -> None:
    """Print what `settings_of_cases` found."""
    for case in cases:
        rows = [(each["setting"], repr(each["value"]), each["from"]) for each in case["settings"]]
        print_table(f"{case['name']}: {case['config_file']}", SETTING_COLUMNS, rows)
        for title, found in (("layout = 'auto'", case["layout"]), (f"tiers by {case['topology']}", case["tiers"])):
            if found:
                print_table(f"{case['name']}: {title}", [*found[0]], [[*each.values()] for each in found])


def setting_rows(case: dict[str, Any]) -> list[tuple[str, Any, str]]:
    """Setting, value and origin of one case of a masked plan; the case's own settings first."""
    values = {**case, "repeat": len(case["rounds"])}
    own = [(key, values[key], origin) for key, origin in case["origins"].items()]
    of_config = [(key, case["config"][key], origin) for key, origin in case["config_origins"].items()]
    # If the benchmark leaves a setting open, the case's own row has the effective value.
    return own + [row for row in of_config if row[0] not in case["origins"]]
