"""The mistakes of the original's analytical model that the default dialect repairs, each of which can be left out."""

from difflib import get_close_matches

from common.errors import MistakeList
from simulation.common.dialect import Repair

PIPELINE, PLACEMENT, GROUP_SIZE, SMALL, ALGORITHM = "pipeline", "placement", "group-size", "small-messages", "algorithm"
GIGABYTE, BROADCASTS, OWN_GROUP, EFFICIENCY, BUBBLE = "gigabyte", "broadcast", "own-group", "efficiency", "bubble"

SWITCHABLE = (
    Repair(PIPELINE, "the time between stages is bytes over a bandwidth, not over -pp_o, whose default is 0"),
    Repair(PLACEMENT, "a group's servers and NICs follow from its ranks: DP inside one server uses NVLink"),
    Repair(GROUP_SIZE, "small messages cost time in groups of any size, not only of 2, 4, ... 128 GPUs"),
    Repair(SMALL, "below 16 MiB the time is interpolated between latency and bandwidth, without a jump at 1 MiB"),
    Repair(ALGORITHM, "NVLS and tree have their own bandwidth and are taken where they are faster than ring"),
    Repair(GIGABYTE, "GB/s are 1e9 bytes a second, not 2^30"),
    Repair(BROADCASTS, "BROADCAST costs time; an unknown collective is an error"),
    Repair(OWN_GROUP, "each phase counts with its own group and overlap, not with the forward phase's"),
    Repair(EFFICIENCY, "measured efficiencies hold for all collectives, groups and numbers of servers"),
    Repair(BUBBLE, "hidden communication does not lengthen the pipeline's bubble"),
)
ALWAYS = (
    Repair("over-16-GiB", "messages above 16 GiB have the efficiency of 16 GiB, where the original gives no result"),
    Repair("parts", "H200, B200, GB200 and ConnectX-8 are known; a GPU type is never guessed"),
    Repair("refusals", "what gave NaN, 1e18 us or a crash is an error with exit code 2"),
)
REPAIRS = (*SWITCHABLE, *ALWAYS)
ALL_SWITCHABLE = frozenset(repair.name for repair in SWITCHABLE)


def chosen_repairs(without: list[str]) -> frozenset[str]:
    """The switchable repairs less those that --without names.

    Raises:
        InputProblems: a name is unknown.
    """
    mistakes = MistakeList()
    for name in without:
        if name not in ALL_SWITCHABLE:
            near = get_close_matches(name, ALL_SWITCHABLE, 1)
            hint = f"did you mean {near[0]}?" if near else f"there is {', '.join(sorted(ALL_SWITCHABLE))}"
            mistakes.add("--without", name, f"is no repair that can be left out; {hint}")
    mistakes.check()
    return ALL_SWITCHABLE - set(without)


def in_force(chosen: frozenset[str]) -> list[Repair]:
    """The repairs of a run, for its header."""
    return [repair for repair in REPAIRS if repair.name in chosen or repair in ALWAYS]
