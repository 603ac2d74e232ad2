"""Types of settings that several files share: numbers with their bounds, sizes, texts of a form, options.

A `words` entry in a type's JSON schema describes the allowed values; without one its type and bounds are shown.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from common.units import size_bytes
from container.reference import PATTERN as IMAGE_REFERENCE
from protocol.finding import KINDS, SEVERITIES
from run_benchmarks.settings.container_options import ContainerOptions, parse_container_options

# A plan lists every process and round: these limits are far beyond any real run, and are still planned in seconds.
MOST_PROCESSES, MOST_ROUNDS, MOST_RETRIES, MOST_HOSTS = 1024, 10_000, 100, 100_000
# Rounds times hosts of a case: a plan has 5 KB for each, and its objects seven times that.
MOST_ROUNDS_OF_HOSTS = 50_000


def repeated_hosts(hosts: Sequence[str]) -> str:
    """The mistake of a list that names a host more than once, in words; "" of any other list."""
    repeated = sorted(host for host, count in Counter(hosts).items() if count > 1)
    return f"each host once, but {', '.join(repeated)} stands there more than once" if repeated else ""


def no_bool(value: object) -> object:
    """Refuse True and False in place of a number.

    Raises:
        ValueError: the value is True or False.
    """
    if isinstance(value, bool):
        raise ValueError("expected a number, not True or False")
    return value


def _form(pattern: str, words: str) -> tuple[AfterValidator, WithJsonSchema]:
    """The validator and the JSON schema of a text of this form."""
    return AfterValidator(in_form(re.compile(pattern), words)), WithJsonSchema({"words": words})


def in_form(form: re.Pattern[str], words: str) -> Callable[[str], str]:
    """A check that a text has this form; its ValueError describes the form in words."""

    def check(text: str) -> str:
        if not form.fullmatch(text):
            raise ValueError(f"expected {words}")
        return text

    return check


# Outermost, so that the bounds are in the JSON schema, which messages and documentation are made of.
NO_BOOL = BeforeValidator(no_bool)
Count = Annotated[int, Field(ge=1, le=MOST_HOSTS), NO_BOOL]
Number = Annotated[int, Field(ge=1, le=1 << 22), NO_BOOL]
Processes = Annotated[int, Field(ge=1, le=MOST_PROCESSES), NO_BOOL]
Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS), NO_BOOL]
Retries = Annotated[int, Field(ge=0, le=MOST_RETRIES), NO_BOOL]
Port = Annotated[int, Field(ge=1, le=65535), NO_BOOL]
MasterPort = Annotated[int, Field(ge=1024, le=65535), NO_BOOL]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False), NO_BOOL]
Placement = Literal["contiguous", "spread"]
Load = Annotated[float, Field(gt=0, allow_inf_nan=False), NO_BOOL]
LinkSeconds = Annotated[float, Field(ge=5, allow_inf_nan=False), NO_BOOL]
SampleSeconds = Annotated[float, Field(ge=0.1, le=60), NO_BOOL]
Percent = Annotated[float, Field(gt=0, allow_inf_nan=False), NO_BOOL]
SIZE_WORDS = "a size such as '32G', '512m' or a number of bytes"
Size = Annotated[
    int,
    BeforeValidator(lambda value: size_bytes(value) if isinstance(value, str) else value),
    Field(gt=0),
    WithJsonSchema({"words": SIZE_WORDS}),
]


OutputSize = Annotated[
    int,
    BeforeValidator(lambda value: size_bytes(value) if isinstance(value, str) else value),
    Field(ge=4 << 10, le=8 << 20),
    WithJsonSchema({"words": "a size such as '64K' or '1M', from 4K to 8M"}),
]


def _options(value: object) -> object:
    return parse_container_options(value) if isinstance(value, str) else value


Options = Annotated[
    ContainerOptions, BeforeValidator(_options), WithJsonSchema({"words": "options of `docker run`, in one text"})
]

ModelName = Annotated[str, *_form(r"[a-z][a-z0-9_]*", "a name of lower-case letters, digits and '_'")]
FrameworkName = Annotated[str, *_form(r"[a-z][a-z0-9_.]*", "a name such as 'pytorch' or 'pytorch_2.0.1'")]
ConfigName = Annotated[str, *_form(r"\w+", "a file's name without folder and '.py': letters, digits and '_'")]
VariableName = Annotated[
    str,
    *_form(r"[A-Za-z_][A-Za-z0-9_]*|", "the name of an environment variable (letters, digits and '_'), or '' for none"),
]
ImageName = Annotated[str, *_form(IMAGE_REFERENCE, "an image such as 'registry.example/pytorch:25.05-py3'")]
WebAddress = Annotated[str, *_form(r"https?://\S+", "an address such as 'https://pypi.org/simple'")]
Database = Annotated[
    str,
    *_form(
        r"off|[a-z0-9]+(\+[a-z0-9_]+)?://\S*", "an SQLAlchemy URL such as 'postgresql+psycopg://host/name', or 'off'"
    ),
]
UserName = Annotated[
    str, *_form(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]*\$?", "a user's name: letters, digits, '_', '-', '.' and '@'")
]
InterfaceName = Annotated[
    str,
    *_form(r"[A-Za-z0-9_.@-]{1,15}", "'auto' or the name of a network interface such as 'eth0', 15 characters at most"),
]


SlurmWord = Annotated[str, *_form(r"[^\s'\"\\\-][^\s'\"\\]*", "a word without quotes, as after `--option=`")]
SlurmImage = Annotated[
    str,
    *_form(
        r"\.?/[^\s,]+|(?!.*\.(sqsh|sif)$)[^\s,/.][^\s,]*",
        "an image: a file by a path that begins with '/' or './', or a registry's name, without blanks and commas",
    ),
]
# HOSTS says which nodes, and a run finds its job by the name. The others make several jobs of one, replace its script,
# keep sbatch from answering, or let a job outlive its nodes.
_NOT_OF_SLURM = "nodes|nodelist|job-name|array|wrap|wait|test-only|no-kill"
SlurmOption = Annotated[
    str,
    *_form(
        rf"--(?!({_NOT_OF_SLURM})(=|$))[a-z][a-z0-9-]*(=[^\n'\"\\]+)?",
        f"one option of sbatch in its long form, such as '--mem=64G', and none of {_NOT_OF_SLURM.replace('|', ', ')}",
    ),
]


def _absolute(path: str) -> str:
    if not path.startswith("/") or ".." in path.split("/") or path.strip("/") == "":
        raise ValueError("expected an absolute path without '..'")
    return "/" + path.strip("/")


HostFolder = Annotated[str, AfterValidator(_absolute), WithJsonSchema({"words": "an absolute path without '..'"})]


def _finding_names(value: object) -> object:
    """One name as a list of it."""
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list | tuple | set) and (unknown := [name for name in names if name not in FINDING_NAMES]):
        found = ", ".join(map(repr, unknown))
        raise ValueError(f"expected severities ({', '.join(SEVERITIES)}) or kinds ({', '.join(KINDS)}), found {found}")
    return names


FINDING_NAMES = (*SEVERITIES, *KINDS)
FindingNames = Annotated[
    tuple[str, ...],
    BeforeValidator(_finding_names),
    WithJsonSchema({"words": f"a list of {', '.join(map(repr, FINDING_NAMES))}"}),
]
