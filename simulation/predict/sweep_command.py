"""Ranks the layouts of a model over GPUs: `python -m simulation sweep`."""

import argparse
import re
import sys
from collections.abc import Mapping
from hashlib import sha256
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from common.command_line import new_path
from common.errors import MistakeList, SimulationError, input_problem
from common.progress import watched
from common.summary import Summary, counted
from common.whole_files import STDOUT, write_all
from simulation.common.dialect import DEFAULT_DIALECT
from simulation.predict.command import AICB_NAMES, calibrated_machines

if TYPE_CHECKING:  # the start of the command needs none of them
    from simulation.predict.iteration import Prediction
    from simulation.predict.kept import KeptLayouts
    from simulation.predict.layouts import Ranking
    from simulation.predict.machine import Machine
    from simulation.predict.network import Network

LISTS = {
    "tp": "tensor parallel sizes", "pp": "pipeline stages", "vpp": "chunks of a stage", "cp": "context parallel sizes",
    "ep": "expert parallel sizes", "mbs": "samples of a micro-batch", "recompute": "none, selective, full",
    "fsdp": "0, 1", "zero": "0, 1", "dp": "data parallel sizes",
}  # fmt: skip
WORDS = ("recompute", "fsdp", "zero")
"""Lists whose help says all that may be in them."""
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
TARGET = re.compile(rf"(?P<tokens>{_NUMBER}(?:e[0-9]{{1,3}})?)\s*tokens\s+in\s+(?P<days>{_NUMBER})\s*days?")
SECONDS_A_DAY = 86400
SERVER = 8
"""GPUs by which --target goes."""
RULES = 3
"""Of layouts and their times: one more where they change, so that no older sweep is gone on with."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of sweep: the model, the GPUs and what is searched for."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="PRESET", help="a model of the dialect framework, such as llama3_70b")
    what.add_argument(
        "--job", type=Path, metavar="FILE", help="a model in JSON or YAML, in the columns of predict --rows"
    )
    parser.add_argument("--gpu", required=True, metavar="TYPE", help="A100, H100, H200, B200, B300, GB200, GB300, L40S")
    parser.add_argument("--gpus", *AICB_NAMES["gpus"], metavar="N", help="how many GPUs; with --target the most")
    parser.add_argument("--gbs", *AICB_NAMES["gbs"], required=True, metavar="N", help="samples of an iteration")
    parser.add_argument("--seq", *AICB_NAMES["seq"], metavar="N", help="tokens of a sample (the model's)")
    parser.add_argument("--precision", metavar="WORD", help="bf16, fp8 or nvfp4 (bf16)")
    for key, text in LISTS.items():
        example = "" if key in WORDS else ", such as 1,2,4"
        names = (f"--{key}", *AICB_NAMES.get(key, ()))
        parser.add_argument(*names, dest=f"list_{key}", action="append", metavar="LIST", help=text + example)
    parser.add_argument(
        "--target",
        metavar="TEXT",
        help=f'"1e12 tokens in 14 days": the fewest GPUs that reach it, in steps of {SERVER}',
    )
    parser.add_argument("--price", type=float, metavar="X", help="of a GPU and hour: the cost of a million tokens")
    parser.add_argument(
        "--top", type=int, default=20, metavar="N", help="layouts that are shown (default: %(default)s)"
    )
    parser.add_argument(
        "-n", "--network", type=Path, metavar="FILE", help="a topology file: the best are predicted again on its flows"
    )
    parser.add_argument(
        "--configs", type=new_path, metavar="FOLDER", help="the best for Megatron-LM, torchtitan, our cases"
    )
    parser.add_argument(
        "--report", type=new_path, metavar="FILE.html", help="a page: Pareto plot, why each is not the first"
    )
    parser.add_argument(
        "--calibrate", type=Path, metavar="FILE.csv|RUN_FOLDER",
        help="fit the machine's factors to measured rows, or to products that base ran for 2 s",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> Summary:
    """Rank the layouts of a model on its GPUs, or find the fewest GPUs that reach the target."""
    from simulation.predict import ready_configs, sweep_report
    from simulation.predict.kept import KeptLayouts

    row, machine, needed, network = _asked(arguments)
    if network is not None:
        _take_gpus(network, arguments, row)
    written = None if arguments.output == STDOUT else arguments.output
    kept = KeptLayouts(written, _identity(arguments, row, machine))
    try:
        found = _fewest(arguments, row, machine, needed, kept) if needed else _ranked(arguments, row, machine, kept)
        if not found.fitting:
            kept.discard()
            raise SimulationError(_nothing(found, arguments, row, machine, needed))
        best = _best(found, machine, arguments.top, network)
    except KeyboardInterrupt:
        keeps = f"{kept.path} keeps {counted(kept.count, 'layout')}: the same command goes on"
        print(keeps if kept.path else "without --output nothing is kept", file=sys.stderr)
        raise
    answer = sweep_report.summary(found, best, machine, arguments.price)
    if needed:
        answer = _with_days(answer, arguments.target, needed, best[0])
    files = []
    if arguments.output is not None:
        files.append((arguments.output, sweep_report.csv_text(found.fitting, machine)))
    if arguments.configs:
        files += [(arguments.configs / name, text) for name, text in ready_configs.configs(best[0])]
    if arguments.report:
        files.append((arguments.report, sweep_report.page(found, best, answer.text)))
    write_all(files)
    kept.discard()
    return answer


def _with_days(answer: Summary, target: str, needed: float, first: "Prediction") -> Summary:
    """The answer, with the days that the first layout (on the network, if there is one) takes for --target."""
    match = TARGET.fullmatch(target.strip())
    assert match is not None
    days = float(match["days"]) * needed / first.tokens_per_second_and_gpu / first.job.gpus
    head, rest = answer.text.split("\n", 1)
    what = "the fewest for" if days <= float(match["days"]) else "which without its network reach"
    head = f"{head}, {what} {target}: the first takes {days:.1f} days"
    return Summary(f"{head}\n{rest}", {**answer.data, "target_days": days})


def _best(found: "Ranking", machine: "Machine", top: int, network: "Network | None") -> "list[Prediction]":
    """The first layouts predicted whole, on the network where there is one, the shortest iteration first."""
    from simulation.predict.iteration import predict

    first = found.fitting[:top]
    best = [predict(each.job, machine, network) for each in watched("best layouts", len(first), first, step=1)]
    return sorted(best, key=lambda each: each.ms)


def _network(path: Path | None) -> "Network | None":
    """The network of -n, if there is one."""
    if path is None:
        return None
    from simulation.predict.network import FLOW, Network

    return Network(path, FLOW)


def _take_gpus(network: "Network", arguments: argparse.Namespace, row: dict[str, str]) -> None:
    """Let the row's GPUs be all of the network where --gpus does not say how many, which it may not exceed."""
    if arguments.gpus is None:
        row["gpus"] = str(network.fabric.gpus)
    mistakes = MistakeList()
    network.check(int(row["gpus"]), mistakes)
    mistakes.check()


def _identity(arguments: argparse.Namespace, row: Mapping[str, str], machine: "Machine") -> str:
    """A line that is another for another sweep."""
    lists = {key: getattr(arguments, f"list_{key}") for key in LISTS}
    return sha256(repr((RULES, sorted(row.items()), sorted(lists.items()), machine)).encode()).hexdigest()


def _nothing(
    found: "Ranking", arguments: argparse.Namespace, row: Mapping[str, str], machine: "Machine", needed: float
) -> str:
    """In words, why no layout is left."""
    if needed and found.least_gib <= machine.memory_GiB:
        return f"no layout of at most {row['gpus']} GPUs reaches {arguments.target}"
    if not found.divided:
        divided = f"{row['gbs']} samples, {row['heads']} heads and the lists"
        why = f"; the first that a rule refuses is {found.refused}" if found.refused else ""
        return f"no layout divides evenly: {divided} over {row['gpus']} GPUs{why}"
    what = f"{counted(found.divided, 'layout')} divide evenly"
    return f"none fits: {what}; the least memory is {found.least_gib:.0f} GiB of {machine.memory_GiB:g}"


def _asked(arguments: argparse.Namespace) -> "tuple[dict[str, str], Machine, float, Network | None]":
    """The model's row, the machine, tokens a second that --target needs (0: no target), and the network of -n."""
    from simulation.predict.job_table import precision_of, preset, read_job

    mistakes = MistakeList()
    if arguments.dialect != DEFAULT_DIALECT:
        mistakes.add("--dialect", arguments.dialect, "has no effect here: the original predicts nothing")
    machine = _machine(arguments.gpu, mistakes)
    needed = _target(arguments.target, mistakes) if arguments.target else 0.0
    _check_numbers(arguments, mistakes)
    mistakes.result(lambda: _lists(arguments))
    network = mistakes.result(lambda: _network(arguments.network))
    row = mistakes.result(lambda: preset(arguments.model) if arguments.model else read_job(arguments.job))
    asked = {"precision": arguments.precision or (row or {}).get("precision", "")}
    precision = precision_of(asked, arguments.model or str(arguments.job), mistakes)
    wanted = {(machine.gpu, precision)} if machine and precision else ()
    known = mistakes.result(lambda: calibrated_machines(arguments.calibrate, wanted))
    mistakes.check()
    assert machine is not None
    if row.get("ddp", "0") not in ("", "0"):
        raise input_problem(
            f"{arguments.job} ddp", row["ddp"], "layouts of Megatron-LM and FSDP2 are swept: leave it out"
        )
    for key in ("dp", "micro_batches", *LISTS):
        row.pop(key, None)
    row |= {"gpu": arguments.gpu, "gpus": arguments.gpus or "16384", "gbs": arguments.gbs}
    row |= {key: value for key in ("seq", "precision") if (value := getattr(arguments, key))}
    return row, known[machine.gpu], needed, network


def _machine(gpu: str, mistakes: MistakeList) -> "Machine | None":
    from simulation.predict.machine import machine_of, machines, other_part

    machine = machine_of(gpu)
    if machine is None:
        mistakes.add("--gpu", gpu, f"is none of {', '.join(machines())}")
    elif other := other_part(gpu):
        mistakes.add("--gpu", gpu, f"{other} is another part than the {machine.gpu} that was measured")
    return machine


def _target(text: str, mistakes: MistakeList) -> float:
    """Tokens a second of `1e12 tokens in 14 days`."""
    match = TARGET.fullmatch(text.strip())
    if match is None or not float(match["days"]) or not float(match["tokens"]):
        mistakes.add("--target", text, 'must be such as "1e12 tokens in 14 days"')
        return 0.0
    return float(match["tokens"]) / float(match["days"]) / SECONDS_A_DAY


def _check_numbers(arguments: argparse.Namespace, mistakes: MistakeList) -> None:
    for flag, value in (("--gpus", arguments.gpus), ("--gbs", arguments.gbs)):
        if value is not None and not (value.isascii() and value.isdigit() and 0 < int(value) < 1 << 24):
            mistakes.add(flag, value, f"must be a whole number from 1 to {(1 << 24) - 1}")
    if arguments.gpus is None and not arguments.target:
        mistakes.add("--gpus", None, "is missing: how many GPUs, or --target")
    if arguments.top < 1:
        mistakes.add("--top", arguments.top, "must be at least 1")
    if arguments.price is not None and not 0 < arguments.price < 1e6:
        mistakes.add("--price", arguments.price, "must be above 0 and below 1e6")


def _ranked(
    arguments: argparse.Namespace, row: Mapping[str, str], machine: "Machine", kept: "KeptLayouts"
) -> "Ranking":
    from simulation.predict import layouts
    from simulation.predict.job_table import job_of

    # The model's mistakes are told before all layouts.
    one = job_of({**row, "gpus": "1", "gbs": "1"}, arguments.model or str(arguments.job))
    swept = layouts.choices(row, _lists(arguments), machine.servers_of(one.gpus_per_node) or machine)
    total = prod(len(swept[key]) for key in layouts.SWEPT)
    if total > layouts.MOST:
        raise input_problem("--tp and the other lists", None, f"are {total} layouts; at most {layouts.MOST} are swept")
    return layouts.ranking(layouts.jobs(row, swept), machine, kept, total)


def _lists(arguments: argparse.Namespace) -> dict[str, list[str]]:
    """The values that were given for the swept columns."""
    mistakes, found = MistakeList(), {}
    for key, text in LISTS.items():
        given = getattr(arguments, f"list_{key}")
        if given is None:
            continue
        words = [word.strip() for each in given for word in each.split(",")]
        allowed = text.split(", ") if key in WORDS else None
        for word in words:
            if allowed and word not in allowed:
                mistakes.add(f"--{key}", word, f"must be {text}")
            if not allowed and not (word.isascii() and word.isdigit() and 0 < int(word) < 1 << 20):
                mistakes.add(f"--{key}", word, "must be whole numbers above 0, such as 1,2,4")
        found[key] = list(dict.fromkeys(word.lstrip("0") or word for word in words))
    mistakes.check()
    return found


def _fewest(
    arguments: argparse.Namespace, row: dict[str, str], machine: "Machine", needed: float, kept: "KeptLayouts"
) -> "Ranking":
    """The ranking of the fewest GPUs, in steps of SERVER, that make `needed` tokens a second; else one of none."""
    from simulation.predict.layouts import Ranking, powers

    most, rest = divmod(int(row["gpus"]), SERVER)
    if not most or rest:
        place = "--gpus" if arguments.gpus is not None or arguments.network is None else f"{arguments.network}: GPUs"
        raise input_problem(place, row["gpus"], f"must be a multiple of {SERVER} with --target")

    def enough(servers: int) -> bool:
        found = tried[servers] = _ranked(arguments, {**row, "gpus": str(SERVER * servers)}, machine, kept)
        if not found.fitting:
            return False
        return found.fitting[0].tokens_per_second_and_gpu * SERVER * servers >= needed

    tried: dict[int, Ranking] = {}
    likely = sorted({*map(int, powers(most)), most})
    first = next(filter(enough, watched("powers of two of GPUs", len(likely), likely, step=1)), most + 1)
    # Fewer GPUs may do what more do not, if they divide the batch.
    fewer = watched("other numbers of GPUs", first - 1, range(1, min(first, most + 1)), step=1)
    best = next((each for each in fewer if each not in tried and enough(each)), first)
    if best in tried:
        return tried[best]
    refused = next(filter(None, (each.refused for each in tried.values())), "")
    most_divided, least = max(each.divided for each in tried.values()), min(each.least_gib for each in tried.values())
    return Ranking(most_divided, [], least, refused)
