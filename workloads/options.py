"""Makes options of the parameters of a job, with AICB's names, and a job of the options."""

import argparse
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.command_line import name_of_read
from common.errors import MistakeList
from common.units import size_bytes
from workloads import dialects
from workloads.dialects import generation
from workloads.dialects.framework import presets as models
from workloads.job import presets
from workloads.job.errors import ParameterError
from workloads.job.parameters import (
    COLLECTIVE,
    DECODE,
    DEEPSPEED_DEFAULTS,
    DEFAULTS,
    FRAMES,
    KINDS,
    MEANINGS,
    SECTIONS,
    TRAINING,
    ZERO_STAGES,
    WorkloadArgs,
)
from workloads.job.rules import past_positions

if TYPE_CHECKING:  # the start of a command does not need it
    from workloads.formats.workload import Workload

TRUE, FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


def whole(text: str) -> int:
    """An integer, also in the form 1e9.

    Raises:
        ValueError: the text is no whole number.
    """
    try:
        return int(text)
    except ValueError:
        number = float(text)
        if not number.is_integer():
            raise
        return int(number)


def truth(text: str) -> bool:
    """True or False.

    Raises:
        ValueError: the text is no truth value.
    """
    if text.lower() in TRUE + FALSE:
        return text.lower() in TRUE
    raise ValueError(text)


def truth_or_auto(text: str) -> bool | None:
    """True, False, or None for auto.

    Raises:
        ValueError: the text is none of them.
    """
    return None if text.lower() == "auto" else truth(text)


def whole_or_auto(text: str) -> int | None:
    """An integer, or None for auto: what follows from the others, whatever a ready-made model says.

    Raises:
        ValueError: the text is neither.
    """
    return None if text.lower() == "auto" else whole(text)


def size(text: str) -> int:
    """Bytes, as 1M or a whole number, of which the rules say what is too small.

    Raises:
        ArgumentTypeError: the text is no size.
    """
    try:
        return int(text) if text.lstrip("-").isdecimal() else size_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from None


whole.__name__, whole_or_auto.__name__, truth.__name__ = "whole number", "whole number or auto", "True or False"


@dataclass(frozen=True, slots=True)
class Option:
    """One parameter on the command line. aliases: other spellings; choices: the only values."""

    name: str
    kind: Callable[[str], Any]
    help: str
    aliases: tuple[str, ...] = ()
    choices: tuple[Any, ...] = ()
    aicb_help: str = ""


def _kind(name: str) -> Callable[[str], Any]:
    """How the text of a parameter is read."""
    if MEANINGS[name].section == COLLECTIVE and name.endswith("_size"):
        return size
    if name == "comp_filepath":
        return name_of_read
    kinds: dict[Any, Callable[[str], Any]] = {
        bool: truth, bool | None: truth_or_auto, int: whole, int | None: whole_or_auto, float: float, str: str,
        str | None: lambda text: None if text == "None" else text,
    }  # fmt: skip
    return kinds[KINDS[name]]


OPTIONS = {
    name: Option(name, _kind(name), meaning.help, meaning.aliases, meaning.choices, meaning.aicb_help)
    for name, meaning in MEANINGS.items()
}


def idle_in(dialect: str, target: str) -> frozenset[str]:
    """Parameters that change nothing in any workload of a dialect."""
    jobs = [
        WorkloadArgs(frame=frame, stage=stage, moe_enable=True, multi_latent_attention=latent, comp_filepath="FILE",
                     overlap_grad_reduce=True, virtual_pipeline=2)
        for frame in FRAMES for stage in ZERO_STAGES for latent in (False, True)
    ]  # fmt: skip
    return frozenset.intersection(*(frozenset(dialects.get(dialect).without_effect(job, target)) for job in jobs))


def add_to(
    parser: argparse.ArgumentParser, dialect: str = dialects.DEFAULT_DIALECT, hidden: Collection[str] = ()
) -> None:
    """Adds every option, with the defaults of a dialect. Only what the user sets ends up in the parsed namespace.

    hidden: taken, but not shown by --help.
    """
    parser.add_argument(
        "--job", type=Path, metavar="FILE", default=argparse.SUPPRESS,
        help="a description of the job in YAML or JSON, as the verb job writes it; options given beside it win",
    )  # fmt: skip
    parser.add_argument(
        "-m", "--model_size", choices=(*presets.NAMES, *models.NAMES), metavar="MODEL", default=argparse.SUPPRESS,
        help=f"a ready-made model: {', '.join(presets.NAMES if dialect == 'aicb' else models.NAMES)}"
        f"{'' if dialect == 'aicb' else ', or an AICB name of one of them'}; options given beside it win",
    )  # fmt: skip
    for title in SECTIONS:
        group = parser.add_argument_group(title)
        for option in [OPTIONS[name] for name, meaning in MEANINGS.items() if meaning.section == title]:
            extra: dict[str, Any] = {"nargs": "?", "const": True} if option.kind in (truth, truth_or_auto) else {}
            if option.choices:
                extra["choices"] = option.choices
            group.add_argument(
                f"--{option.name}",
                *option.aliases,
                dest=option.name,
                type=option.kind,
                default=argparse.SUPPRESS,
                metavar=_METAVARS.get(option.kind, "TEXT"),
                help=argparse.SUPPRESS if option.name in hidden else _help(option, dialect),
                **extra,
            )


def _help(option: Option, dialect: str) -> str:
    own = {} if dialect == "aicb" else DEEPSPEED_DEFAULTS
    default = own.get(option.name, getattr(DEFAULTS, option.name))
    choices = f": {', '.join(map(str, option.choices))}" if option.choices else ""
    words = option.aicb_help if dialect == "aicb" and option.aicb_help else option.help
    return words + choices + ("" if default is None or default is False else f" (default: {default})")


_METAVARS: Mapping[Any, str] = {
    whole: "N", whole_or_auto: "N", size: "BYTES", truth: "BOOL", truth_or_auto: "BOOL|auto", float: "X",
}  # fmt: skip


def resolve(given: dict[str, Any], model_size: str | None, target: str, dialect: str) -> WorkloadArgs:
    """The parameters of the dialect's preset, overridden by those given.

    Raises:
        ValueError: this frame has no such preset.
    """
    if dialect == "framework" and given.get("frame") == "DeepSpeed":
        given = {**DEEPSPEED_DEFAULTS, **given}
    if model_size is None:
        return WorkloadArgs(**given)
    if dialect == "framework":
        preset = models.values(model_size, target, given.get("frame"))
    else:
        preset = presets.values(model_size, target=target, frame=given.get("frame"))
    merged = {**preset, **given}
    if merged.get("phase", TRAINING) != TRAINING:
        # A preset's batch and split sequence are those of training.
        merged["enable_sequence_parallel"] = given.get("enable_sequence_parallel", False)
        if "global_batch" not in given:
            merged.pop("global_batch", None)
    if "global_batch" not in merged:
        args = WorkloadArgs(**merged)
        if args.tensor_model_parallel_size * args.pipeline_model_parallel * args.context_parallel_size > 0:
            ranks = max(1, args.data_parallel_size)
            count = 1 if args.frame == "DeepSpeed" else 2
            if dialect == "framework":
                count = max(count, args.pipeline_model_parallel)
            merged["global_batch"] = count * ranks * args.micro_batch
    return WorkloadArgs(**merged)


def with_file(given: dict[str, Any]) -> None:
    """Put what the file of `--job` says below the options in `given`.

    Raises:
        InputProblems: the file is wrong.
    """
    if "job" in given:
        from workloads.job.description import read

        said = read(given.pop("job"), {name: option.kind for name, option in OPTIONS.items()})
        given.update({**said, **given})


def described(given: dict[str, Any], target: str, dialect: str) -> WorkloadArgs:
    """The job that the options of `add_to` describe. `given` then has what its file says, without the preset.

    Raises:
        InputProblems: there is no such preset, or the file is wrong; then also what is wrong with --comp_filepath.
    """
    mistakes = MistakeList()
    args = mistakes.result(lambda: _described(given, target, dialect))
    if mistakes.mistakes and given.get("comp_filepath") and given.get("aiob_enable"):  # else the rules check it
        from workloads.compute import aiob

        mistakes.result(lambda: aiob.read(Path(given["comp_filepath"])))
    mistakes.check()
    return args


def _described(given: dict[str, Any], target: str, dialect: str) -> WorkloadArgs:
    with_file(given)
    model_size = given.pop("model_size", None)
    try:
        return resolve(given, model_size, target, dialect)
    except ValueError as error:
        raise ParameterError([str(error)]) from None


def note_idle(
    given: Collection[str], args: WorkloadArgs, dialect: str, target: str, made: "Workload | None" = None
) -> None:
    """Say on stderr which options of those `given` change no row of the workload that a dialect makes of `args`.

    made: the default dialect's workload: then options without which its rows stay the same are told, too.
    """
    idle = set(given) & dialects.get(dialect).without_effect(args, target)
    if made is not None and dialect == dialects.DEFAULT_DIALECT:
        idle |= {name for name in set(given) - idle - _OF_EVERY_JOB if _makes_no_row(name, args, made)}
    if idle:
        print(f"note: no effect on this workload: {', '.join(f'--{name}' for name in sorted(idle))}", file=sys.stderr)


def note_positions(given: Collection[str], args: WorkloadArgs) -> None:
    """Warn on stderr of a sequence, or the token after it, past the positions that are `given`, else those of the
    ready-made model of its name: a job that says nothing of them has our default, which no model is known to have.
    """
    limit = args.max_position_embeddings
    if "max_position_embeddings" not in given:
        limit = models.values(args.model_name)["max_position_embeddings"] if args.model_name in models.NAMES else 0
    tokens = args.seq_length + (args.phase == DECODE)
    if said := past_positions(args.model_name or "the model", tokens, limit):
        print(f"warning: {said}", file=sys.stderr)


_OF_EVERY_JOB = {"frame", "model_name", "world_size", "hidden_size", "num_layers"}
"""Parameters that are in the rows, or the file's name, of every job."""


def _makes_no_row(name: str, args: WorkloadArgs, made: "Workload") -> bool:
    """Whether the workload stays the same without a parameter that is not at its default, and with other values."""
    own = DEEPSPEED_DEFAULTS if args.frame == "DeepSpeed" else {}
    value, default = getattr(args, name), own.get(name, getattr(DEFAULTS, name))
    if value == default:
        return False
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    others = [default, *MEANINGS[name].choices, *((0, 2 * value) if is_number else ())]
    found = [_made(replace(args, **{name: other})) for other in others]
    return found[0] is not None and all(each.rows.is_like(made.rows) for each in found if each)


def _made(args: WorkloadArgs) -> "Workload | None":
    """The default dialect's workload; None: a rule refuses it."""
    try:
        return generation.generate(args)
    except ParameterError:
        return None
