"""Settings of pipeline parallelism, which of a model's layers a stage has, and what is refused. Needs no torch."""

from typing import Self

from pydantic import Field, model_validator

from training.benchmarks.driver.training.settings.settings import TrainingConfig


class PipelineSettings(TrainingConfig):
    """Settings of a model whose layers can be divided into stages, which ranks compute one after the other.

    A stage has consecutive layers; stage s is on rank s modulo `pipeline_parallel_size` of its pipeline. The
    micro-batches in a pipeline are those of a step, `gradient_accumulation_steps`.
    """

    pipeline_parallel_size: int = Field(1, ge=1, description="ranks that compute the layers one after the other")
    pipeline_stages_per_rank: int = Field(
        1, ge=1, description="stages on each of these ranks: 1 is the schedule 1F1B, more are interleaved 1F1B"
    )

    @model_validator(mode="after")
    def _pipeline_fits(self) -> Self:
        problems = self._pipeline_problems()
        if problems:
            raise ValueError("; ".join(problems))
        return self

    def _pipeline_problems(self) -> list[str]:
        ranks, per_rank = self.pipeline_parallelism()
        if ranks == 1:
            return [] if per_rank == 1 else [f"pipeline_stages_per_rank = {per_rank} needs pipeline_parallel_size > 1"]
        why = f"which pipeline_parallel_size = {ranks} needs"
        problems = [
            f"{key} = {getattr(self, key)!r}; allowed: {allowed}, {why}"
            for key, is_right, allowed in (
                ("strategy", self.strategy != "hsdp", "'ddp', 'fsdp'"),
                ("precision", self.precision != "fp16", "'fp32', 'bf16'"),
                ("profile", self.profile != "phases", "None, 'trace'"),
                ("save_weights", self.save_weights is None, "None"),
            )
            if not is_right
        ]
        if self.context_parallelism() > 1:
            problems.append(f"context_parallel_size = {self.context_parallelism()}; allowed: 1, {why}")
        if self.fp8_recipe() is not None:
            problems.append(f"fp8 = {self.fp8_recipe()!r}; allowed: None, {why}")
        if self.num_layers < ranks * per_rank:
            problems.append(
                f"num_layers = {self.num_layers}; allowed: {ranks * per_rank} or more, a layer in each stage"
            )
        micro_batches = self.gradient_accumulation_steps
        if not self.can_have(micro_batches):
            allowed = f"multiples of {ranks}" if per_rank > 1 else f"{ranks} or more"
            problems.append(
                f"gradient_accumulation_steps = {micro_batches}; allowed: {allowed},"
                f" the micro-batches of pipeline_parallel_size = {ranks}"
            )
        return problems

    def can_have(self, micro_batches: int) -> bool:
        ranks, per_rank = self.pipeline_parallelism()
        return micro_batches >= ranks and (per_rank == 1 or micro_batches % ranks == 0)

    def pipeline_parallelism(self) -> tuple[int, int]:
        return self.pipeline_parallel_size, self.pipeline_stages_per_rank


def layers_of_stages(num_layers: int, stages: int) -> list[range]:
    """The layers of each stage: equally many, and of those left over one more in the stages in the middle, since the
    first stage has the embedding, too, and the last one the output.
    """
    each, left = divmod(num_layers, stages)
    begin = (stages - left) // 2
    found = []
    first = 0
    for stage in range(stages):
        count = each + (begin <= stage < begin + left)
        found.append(range(first, first + count))
        first += count
    return found
