"""Parses the command line that every workload of any framework has. Needs no torch.

`--config_file F --set key=value ...`, or `--case_file F` as the controller starts a rank; and `--vendor V --case C
--data_dir D`. All are optional.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from protocol.case_config import parse_override

# The number of the round, counted from 1, in the environment of its ranks.
ROUND_ENV = "CLUSTERDYNO_ROUND"
# The folder in which a host remembers the hashes of data files.
CACHE_ENV = "CLUSTERDYNO_DATA_CACHE"


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkloadArguments:
    """Arguments of a workload; `overrides` are the settings given by --set."""

    config_file: Path | None
    case_file: Path | None
    vendor: str | None
    case: str | None
    data_dir: Path | None
    overrides: Mapping[str, object]


def parse_arguments(model: str, argv: Sequence[str]) -> WorkloadArguments:
    """The arguments in `argv`, without the program's name. Usage errors are printed and leave with exit code 2."""
    parser = argparse.ArgumentParser(prog=model, allow_abbrev=False)
    parser.add_argument("--config_file", type=Path, help="the case's config file: plain Python assignments")
    parser.add_argument(
        "--case_file", type=Path, help="the case's resolved settings, instead of --config_file and --set"
    )
    parser.add_argument("--vendor", help="a folder of vendors/; decides the backend unless the config does")
    parser.add_argument("--case", help="name of the case, for the record")
    parser.add_argument("--data_dir", type=Path, help="folder of the case's data")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    # torchrun does not remove the `--` between its options and the workload's.
    options = parser.parse_args(argv[1:] if argv and argv[0] == "--" else argv)
    if options.case_file is not None and (options.config_file is not None or options.overrides):
        parser.error("--case_file has every setting: it goes without --config_file and --set")
    try:
        overrides = dict(parse_override(text) for text in options.overrides)
    except ValueError as error:
        parser.error(f"--set {error}")
    return WorkloadArguments(
        config_file=options.config_file,
        case_file=options.case_file,
        vendor=options.vendor,
        case=options.case,
        data_dir=options.data_dir,
        overrides=overrides,
    )


def round_number() -> int:
    """The number of the round that this process belongs to, counted from 1; 1 for a run by hand."""
    number = os.environ.get(ROUND_ENV, "")
    return int(number) if number.isdecimal() and number != "0" else 1
