"""Warns of workloads without compute times: the time of their iteration is none."""

import sys

NO_COMPUTATION = 5e-5  # of the iteration: the report shows 0.00 %
UNTIMED = (
    "COMPUTATION IS 0 % of the iteration, so the total is no iteration's time: the rows have no compute times. Measure "
    "them on the GPU with `python -m workloads aiob <the job's options> --output times.txt` and make "
    "the workload again with `--aiob_enable --comp_filepath times.txt`"
)


def warn_if_untimed(name: str, computation: float, total: float) -> list[str]:
    """Print the warning if workload `name` computes for almost nothing of its iteration (both in one unit of time).

    Returns it as a list, which is empty otherwise.
    """
    if computation >= NO_COMPUTATION * total:
        return []
    print(f"warning: {name}: {UNTIMED}", file=sys.stderr)
    return [f"{name}: {UNTIMED}"]
