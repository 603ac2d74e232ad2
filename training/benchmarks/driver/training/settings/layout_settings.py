"""Settings of the automatic layout, and the refusal of settings beside it that it decides. Needs no torch."""

from collections.abc import Mapping, Sequence
from typing import Literal, Self

from pydantic import Field, model_validator

from common.errors import Problem
from protocol.case_config import CaseConfig

# What layout = "auto" decides by itself; train_batch_size x gradient_accumulation_steps it only divides.
DECIDED = ("activation_checkpointing",)


class LayoutSettings(CaseConfig):
    """How a step is laid out on the device's memory: as the settings say, or as the memory estimate allows."""

    layout: Literal["fixed", "auto"] = Field(
        "fixed",
        description="auto: micro-batch and recomputation follow from the memory estimate;"
        " train_batch_size x gradient_accumulation_steps samples stay those of a step",
    )
    device_memory_bytes: int | None = Field(
        None, ge=1 << 20, description="memory of a device for layout = 'auto'; None: what the device has"
    )

    @model_validator(mode="after")
    def _memory_is_for_auto(self) -> Self:
        if self.device_memory_bytes is not None and self.layout != "auto":
            raise ValueError("device_memory_bytes has no effect without layout = 'auto'; allowed: None")
        return self

    @classmethod
    def misplaced(cls, sources: Sequence[tuple[str, Mapping[str, object]]]) -> list[Problem]:
        """The values that layout = "auto" would replace although they are set in the same place, or in a later one."""
        last = max((index for index, (_, given) in enumerate(sources) if "layout" in given), default=None)
        if last is None or sources[last][1]["layout"] != "auto":
            return []
        message = "layout = 'auto' decides it; leave one of them out, or set layout = 'fixed'"
        return [
            Problem(source, key, given[key], message)
            for source, given in sources[last:]
            for key in DECIDED
            if key in given
        ]
