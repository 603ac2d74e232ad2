"""Types of settings that several files of a user share: numbers with their bounds, sizes, container options."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from run_benchmarks.container_options import ContainerOptions, parse_container_options, parse_size


def no_bool(value: object) -> object:
    """Refuse True and False where a number belongs. Raises ValueError."""
    if isinstance(value, bool):
        raise ValueError("a number, not True or False")
    return value


Count = Annotated[int, BeforeValidator(no_bool), Field(ge=1)]
Port = Annotated[int, BeforeValidator(no_bool), Field(ge=1, le=65535)]
Seconds = Annotated[float, BeforeValidator(no_bool), Field(gt=0, allow_inf_nan=False)]
Size = Annotated[
    int, BeforeValidator(lambda value: parse_size(value) if isinstance(value, str) else value), Field(gt=0)
]


def _options(value: object) -> object:
    return parse_container_options(value) if isinstance(value, str) else value


Options = Annotated[ContainerOptions, BeforeValidator(_options)]
