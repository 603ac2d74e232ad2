"""Settings of BERT pretraining in PaddlePaddle. Needs neither Paddle nor torch: the controller validates with it."""

from typing import Literal, Self

from pydantic import Field, model_validator

from training.benchmarks.bert.settings import BertSettings

ENTRY_MODULE = "training.benchmarks.bert.paddle.run_pretraining"
LAUNCHER = "processes"

# Settings of torch's trainer for which there is one value here, its default.
_ONE_VALUE = (
    "num_workers", "init_loss_scale", "tf32", "strategy", "shard_size", "activation_checkpointing", "attention",
    "optimizer_impl", "compile_backend", "checkpoint_dir", "checkpoint_interval_steps", "resume", "save_weights",
    "compare_interval_steps", "profile", "profile_steps", "profile_ranks", "unpad", "layout",
)  # fmt: skip


class Config(BertSettings):
    """BERT (Devlin et al. 2019) in PaddlePaddle, weights from safetensors; the defaults are BERT-Large's sizes."""

    precision: Literal["fp32", "bf16"] = Field("fp32", description="of the computation; weights stay float32")
    compare_interval_steps: int | None = Field(None, ge=1, description="steps between two comparisons of the ranks")
    compile_backend: str | None = Field(None, description="torch.compile backend; None: not compiled")

    @model_validator(mode="after")
    def _has_what_paddle_offers(self) -> Self:
        fields = type(self).model_fields
        wrong = [
            f"{key} = {getattr(self, key)!r}; allowed with Paddle: {fields[key].default!r}"
            for key in _ONE_VALUE
            if getattr(self, key) != fields[key].default
        ]
        if wrong:
            raise ValueError("; ".join(wrong))
        return self
