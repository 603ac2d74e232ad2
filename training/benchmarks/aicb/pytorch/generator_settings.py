"""Makes a setting of each parameter of the generator, so that a case states a workload as `generate` does. No torch."""

from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import Field, create_model

from protocol.case_config import CaseConfig
from workloads.job.parameters import DEFAULTS, WorkloadArgs
from workloads.options import OPTIONS

OF_THE_RUN = frozenset({"world_size", "pp_rank", "gpu_type", "enable_visual", "workload_only"})
"""Parameters that the run itself determines, or that change no row."""
NAMES = tuple(name for name in get_type_hints(WorkloadArgs) if name not in OF_THE_RUN)


def _kind(name: str, hint: Any) -> Any:
    """The type of a setting: the parameter's choices, else its type; None says nothing."""
    choices = OPTIONS[name].choices if name in OPTIONS else ()
    if choices:
        return Literal[tuple(choices)] | None
    parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return next(part for part in parts if part is not type(None)) | None


def _field(name: str, hint: Any) -> tuple[Any, Any]:
    default = getattr(DEFAULTS, name)
    words = OPTIONS[name].help if name in OPTIONS else f"AICB's {name}"
    usual = "" if default is None else f"; AICB's default: {default}"
    return _kind(name, hint), Field(None, description=f"{words}{usual}")


if TYPE_CHECKING:
    GeneratorSettings = CaseConfig
else:
    GeneratorSettings = create_model(
        "GeneratorSettings",
        __base__=CaseConfig,
        __module__=__name__,
        __doc__="The parameters of a generated workload; None: the preset's value, else AICB's default.",
        **{name: _field(name, hint) for name, hint in get_type_hints(WorkloadArgs).items() if name in NAMES},
    )
