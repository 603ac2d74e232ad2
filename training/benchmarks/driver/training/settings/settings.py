"""Settings that all training benchmarks share. Needs no torch: the controller validates case configs with them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from common.errors import Problem
from protocol.case_config import CaseConfig
from training.benchmarks.driver.training.settings.division import ranks_of_a_copy

_LONGEST = 1000  # numbers of a range


def numbers_of(text: int | str, *, least: int) -> tuple[int, ...]:
    """The numbers that a number or a text such as "5..9 20" names, in order.

    Raises:
        ValueError: it is no such text, or a number is below `least`.
    """
    found: set[int] = set()
    for part in str(text).split() or [""]:
        first, dots, last = part.partition("..")
        ends = (first, last) if dots else (first, first)
        if not all(end.isascii() and end.isdigit() for end in ends):
            raise ValueError(f"{part!r} is no number; allowed: numbers and ranges, as in '5..9 20'")
        begin, end = map(int, ends)
        if not least <= begin <= end < begin + _LONGEST:
            raise ValueError(f"{part!r}; allowed: from {least} on, ascending, up to {_LONGEST} numbers")
        found.update(range(begin, end + 1))
    return tuple(sorted(found))


# What layout = "auto" decides by itself; train_batch_size x gradient_accumulation_steps it only divides.
DECIDED = ("activation_checkpointing",)


AUTO = "auto"
FLASH_ATTENTION = "flash_attention_2"
ENGINE, TORCH = "transformer_engine", "torch"
Recompute = Literal["none", "selective", "full"]
PHASES = ("data", "forward", "backward", "exposed_communication", "optimizer")
PROFILED_STEPS = "21..25"


class TrainingConfig(CaseConfig):
    """Settings of the shared trainer; a model's `Config` adds its sizes, its targets and its data.

    A step is one optimizer update: `gradient_accumulation_steps` micro-batches of `train_batch_size` samples on each
    data-parallel rank. The run ends at the first limit it reaches, or once an evaluation meets all targets.
    """

    target_settings: ClassVar[tuple[tuple[str, str, bool], ...]] = ()
    """Each setting that bounds a metric of an evaluation: its name, the metric, whether it is a lower bound."""

    layout: Literal["fixed", "auto"] = Field(
        "fixed",
        description="auto: micro-batch and recomputation follow from the memory estimate;"
        " train_batch_size x gradient_accumulation_steps samples stay those of a step",
    )
    device_memory_bytes: int | None = Field(
        None, ge=1 << 20, description="memory of a device for layout = 'auto'; None: what the device has"
    )

    data: Literal["synthetic", "files"] = Field("files", description="data made on the fly, or read from data_dir")
    train_samples: int = Field(4096, ge=1, description="samples of the synthetic training set")
    eval_samples: int = Field(512, ge=1, description="samples of the synthetic evaluation set")
    identify_data: bool = Field(True, description="whether the sha256 of every file that is read is recorded")
    num_workers: int = Field(0, ge=0, description="processes that load data for each rank; 0: the rank itself")

    num_layers: int = Field(24, ge=1, description="transformer layers")
    hidden_size: int = Field(1024, ge=1, description="width of the residual stream")
    num_attention_heads: int = Field(16, ge=1, description="attention heads")

    train_batch_size: int = Field(8, ge=1, description="samples of a micro-batch on each device")
    eval_batch_size: int = Field(8, ge=1, description="samples of an evaluation batch on each device")
    gradient_accumulation_steps: int = Field(1, ge=1, description="micro-batches of a step")
    max_steps: int | None = Field(None, ge=1, description="steps after which the run ends")
    max_samples: int | None = Field(None, ge=1, description="samples of all ranks after which the run ends")
    max_epochs: int | None = Field(None, ge=1, description="passes over the training set after which the run ends")
    eval_interval_samples: int | None = Field(
        None, ge=1, description="samples between two evaluations; None: only at the end"
    )
    compare_interval_steps: int | None = Field(50, ge=1, description="steps between comparisons of ranks; None: none")
    vary_seed: bool = Field(False, description="whether round n takes seed + n - 1, for a reference of several seeds")
    eval_start_samples: int = Field(0, ge=0, description="samples before the first evaluation")
    log_freq: int = Field(10, ge=1, description="steps between two logged steps")

    optimizer: Literal["adamw", "adam", "lamb"] = Field("adamw", description="adam: weight decay is part of the loss")
    learning_rate: float = Field(1e-4, gt=0, description="peak learning rate")
    weight_decay: float = Field(0.01, ge=0, description="of matrices; biases and norms are not decayed")
    beta1: float = Field(0.9, ge=0, lt=1, description="decay of the first moment")
    beta2: float = Field(0.999, ge=0, lt=1, description="decay of the second moment")
    eps: float = Field(1e-8, gt=0, description="added to the root of the second moment")
    max_grad_norm: float | None = Field(None, gt=0, description="gradients are scaled down to this norm; None: never")
    lr_schedule: Literal[
        "constant", "linear", "cosine",
        "flagperf_bert", "flagperf_bert_paddle", "flagperf_cpm", "flagperf_cpm_cosine", "flagperf_glm",
    ] = Field("linear", description="shape after the warm-up; flagperf_*: by FlagPerf's formulas")  # fmt: skip
    warmup: float = Field(0.0, ge=0, lt=1, description="fraction of lr_decay_steps in which the rate rises from 0")
    lr_decay_steps: int | None = Field(
        None, ge=1, description="steps until the lowest rate; None: all of the run (flagperf_*: max_steps)"
    )
    min_lr_ratio: float = Field(0.0, ge=0, le=1, description="lowest rate / learning_rate")

    precision: Literal["fp32", "bf16", "fp16"] = Field("fp32", description="of the computation; weights stay float32")
    init_loss_scale: float = Field(65536.0, gt=0, description="first loss scale of fp16, adapted automatically")
    tf32: bool = Field(True, description="whether float32 matrix products may use TF32 where a device has it")
    strategy: Literal["ddp", "fsdp", "hsdp"] = Field(
        "ddp", description="data parallelism: replicas, FSDP2's shards, or replicas of shards"
    )
    shard_size: int | None = Field(
        None, ge=1, description="data-parallel ranks that hold a replica's shards (hsdp); None: those of a node"
    )
    activation_checkpointing: bool | Recompute = Field(
        False,
        description="what the backward pass computes again: True ('full') whole blocks; 'selective' all of them but"
        " matrix products and attention; False ('none') nothing",
    )
    attention: Literal["auto", "sdpa", "flash_attention_2", "eager"] = Field(
        "auto", description="torch's kernels, flash-attn's or plain products; auto: the best that works here"
    )
    optimizer_impl: Literal["auto", "apex", "fused", "foreach"] = Field(
        "auto", description="apex's kernels, torch's fused or multi-tensor ones; auto: the best that works here"
    )
    layers: Literal["auto", "torch", "transformer_engine"] = Field(
        "auto", description="whose linear layers and norms the blocks have; auto: the faster ones, timed on the device"
    )
    compile_backend: str | None = Field(
        "auto", description="torch.compile backend of each block; None: not compiled; auto: inductor where it settles"
    )

    init_checkpoint: str | None = Field(
        None, description="file or folder with the weights to start from; relative paths are in data_dir"
    )
    save_weights: str | None = Field(
        None, description="folder for the weights after the last step, as Hugging Face's safetensors; rank 0 writes it"
    )
    checkpoint_dir: str | None = Field(
        None, description="folder for checkpoints; all ranks must see the same (a shared file system on several nodes)"
    )
    checkpoint_interval_steps: int | None = Field(None, ge=1, description="steps between two checkpoints")
    resume: bool = Field(False, description="whether to continue from the last checkpoint in checkpoint_dir, if any")
    nominal_parameters: int | None = Field(
        None, ge=1, description="parameters by which mfu_6n counts, within 10 % of the model's; None: the model's"
    )
    warmup_steps: int | None = Field(
        None, ge=0, description="steps before the steady state is measured; None: until the step time has settled"
    )
    profile: Literal["phases", "trace"] | None = Field(
        None, description="of chosen steps: seconds by phase, or a trace of torch.profiler with a memory snapshot"
    )
    profile_steps: int | str | None = Field(
        None, description=f"steps that are profiled, as 5 or '5..9 20..24'; None: {PROFILED_STEPS}"
    )
    profile_ranks: int | str | None = Field(None, description="ranks that are profiled, as 8 or '0..7 16'; None: 0")
    peak_tflops: float | None = Field(
        None, gt=0, description="peak of one device for MFU; None: the datasheet's, where the device is known"
    )

    @model_validator(mode="after")
    def _memory_is_for_auto(self) -> Self:
        if self.device_memory_bytes is not None and self.layout != "auto":
            raise ValueError("device_memory_bytes has no effect without layout = 'auto'; allowed: None")
        return self

    @field_validator("activation_checkpointing")
    @classmethod
    def _one_word_for_each(cls, value: bool | str) -> bool | str:
        return {"none": False, "full": True}.get(str(value), value)

    @model_validator(mode="after")
    def _has_an_end(self) -> Self:
        if self.max_steps is None and self.max_samples is None and self.max_epochs is None:
            raise ValueError("the run has no end; allowed: one of max_steps, max_samples, max_epochs at least")
        return self

    @model_validator(mode="after")
    def _steps_follow_the_warmup(self) -> Self:
        if self.warmup_steps is not None and self.max_steps is not None and self.warmup_steps >= self.max_steps:
            raise ValueError(f"warmup_steps = {self.warmup_steps}; allowed: below max_steps = {self.max_steps}")
        return self

    @model_validator(mode="after")
    def _profile_fits(self) -> Self:
        for key in ("profile_steps", "profile_ranks"):
            text = getattr(self, key)
            if text is None:
                continue
            if self.profile is None:
                raise ValueError(f"{key} = {text!r} has no effect without profile")
            try:
                numbers_of(text, least=0 if key == "profile_ranks" else 1)
            except ValueError as error:
                raise ValueError(f"{key} = {text!r}: {error}") from None
        return self

    @model_validator(mode="after")
    def _evaluations_have_an_interval(self) -> Self:
        if self.eval_start_samples and self.eval_interval_samples is None:
            raise ValueError("eval_start_samples has no effect without eval_interval_samples; allowed: 0")
        return self

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> Self:
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size = {self.hidden_size} is no multiple of num_attention_heads = {self.num_attention_heads}"
            )
        return self

    @model_validator(mode="after")
    def _shards_have_a_size(self) -> Self:
        if self.shard_size is not None and self.strategy != "hsdp":
            raise ValueError(f"shard_size has no effect with strategy = {self.strategy!r}; allowed: None")
        return self

    @model_validator(mode="after")
    def _kernels_fit(self) -> Self:
        if self.optimizer == "lamb" and self.optimizer_impl == "fused":
            raise ValueError("optimizer_impl = 'fused': torch has no fused LAMB; allowed: 'auto', 'apex', 'foreach'")
        if self.attention == FLASH_ATTENTION and self.precision == "fp32":
            allowed = f"needs precision 'bf16' or 'fp16', which is {self.precision!r}"
            raise ValueError(f"attention = {FLASH_ATTENTION!r} {allowed}")
        return self

    @model_validator(mode="after")
    def _layers_fit(self) -> Self:
        if self.layers != ENGINE:
            return self
        is_selective = self.recompute == "selective"
        hidden = "has no products that activation_checkpointing = 'selective' keeps" if is_selective else None
        problems = [each for each in (self.against_engine(), hidden) if each is not None]
        if problems:
            raise ValueError(f"layers = {ENGINE!r} {', '.join(problems)}; allowed: 'auto', 'torch'")
        return self

    @model_validator(mode="after")
    def _checkpoints_have_a_folder(self) -> Self:
        if self.checkpoint_dir is None and (self.checkpoint_interval_steps is not None or self.resume):
            key = "resume" if self.resume else "checkpoint_interval_steps"
            raise ValueError(f"{key} needs checkpoint_dir, which is None")
        if self.checkpoint_dir is not None and self.checkpoint_interval_steps is None and not self.resume:
            raise ValueError("checkpoint_dir has no effect without checkpoint_interval_steps or resume")
        return self

    @model_validator(mode="after")
    def _schedule_fits(self) -> Self:
        if self.min_lr_ratio and self.lr_schedule not in ("linear", "cosine", "flagperf_glm"):
            raise ValueError(f"min_lr_ratio has no effect with lr_schedule = {self.lr_schedule!r}; allowed: 0")
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

    def against_engine(self) -> str | None:
        """The reason why Transformer Engine's layers do not compute what these settings say, None if they do."""
        problems = []
        if self.precision == "fp32":
            problems.append("needs precision 'bf16' or 'fp16', which is 'fp32'")
        if self.tensor_parallelism()[0] > 1:
            problems.append(f"needs tensor_parallel_size = 1, which is {self.tensor_parallelism()[0]}")
        if self.fp8_recipe() not in (None, "tensorwise"):
            problems.append(f"has no recipe like fp8 = {self.fp8_recipe()!r}")
        return ", ".join(problems) or None

    def data_refusal(self, *, has_folder: bool) -> str | None:
        if self.data == "files" and not has_folder:
            return "data = 'files' needs a folder: set it and data_dir_container, or data = 'synthetic' of the config"
        if self.data == "synthetic" and has_folder:
            return "has no effect with data = 'synthetic'; leave it out, or set data = 'files'"
        return None

    def refusal(self, *, nnodes: int, nproc: int) -> str | None:
        try:
            self.ranks_of_a_copy(world_size=nnodes * nproc, per_node=nproc)
        except ValueError as error:
            return str(error)
        if self.profiled_ranks()[-1] >= nnodes * nproc:
            return f"profile_ranks = {self.profile_ranks!r}; allowed: 0 to {nnodes * nproc - 1}, the ranks of the run"
        return None

    def ranks_of_a_copy(self, *, world_size: int, per_node: int) -> int:
        """The data-parallel ranks, 1 or more, that divide a copy of the parameters between them."""
        return ranks_of_a_copy(
            strategy=self.strategy,
            shard_size=self.shard_size,
            tp_size=self.tensor_parallelism()[0],
            pp_size=self.pipeline_parallelism()[0],
            cp_size=self.context_parallelism(),
            world_size=world_size,
            per_node=per_node,
        )

    @property
    def recompute(self) -> Recompute:
        """The recomputation of the backward pass."""
        if self.activation_checkpointing == "selective":
            return "selective"
        return "full" if self.activation_checkpointing else "none"

    def of_round(self, number: int) -> Self:
        """The settings of a round, counted from 1."""
        return self.model_copy(update={"seed": self.seed + number - 1}) if self.vary_seed else self

    def profiled_steps(self) -> tuple[int, ...]:
        """The steps that `profile` is about, from 1."""
        return numbers_of(PROFILED_STEPS if self.profile_steps is None else self.profile_steps, least=1)

    def profiled_ranks(self) -> tuple[int, ...]:
        """The global ranks that `profile` is about."""
        return numbers_of(0 if self.profile_ranks is None else self.profile_ranks, least=0)

    def targets(self) -> tuple["Target", ...]:
        """Bounds that an evaluation must reach for convergence; without any the run measures speed alone."""
        given = ((metric, getattr(self, key), at_least) for key, metric, at_least in self.target_settings)
        return tuple(Target(metric=name, bound=bound, at_least=low) for name, bound, low in given if bound is not None)

    def tokens_per_sample(self) -> int:
        """Tokens that the model reads for one sample."""
        raise NotImplementedError

    def flops_per_sample(self) -> int:
        """Floating-point operations of a sample's matrix products, forward and backward; a multiply-add counts as two.

        Recomputed activations do not count, and the attention matrix counts in full even if it is causal.

        Source: Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (2022), appendix B.
        """
        raise NotImplementedError

    def parameters(self) -> int | None:
        """Number of the model's parameters, shared ones once; None: it is not known without the model."""
        return None

    def described_model(self) -> Mapping[str, int] | None:
        """The model in the columns of `python -m simulation predict --job`; None: it cannot be said in these."""
        return None

    def varying_shapes(self) -> str | None:
        """The reason why the shapes of a block's inputs differ from step to step; None: they are the same."""
        return None

    def tensor_parallelism(self) -> tuple[int, bool]:
        """Number of ranks that share each layer, and whether they also share the sequence between layers."""
        return 1, False

    def pipeline_parallelism(self) -> tuple[int, int]:
        """Number of ranks that compute the layers one after the other, and of stages on each of them."""
        return 1, 1

    def context_parallelism(self) -> int:
        """Number of ranks that divide the sequence of each sample between them."""
        return 1

    def casts_weights(self) -> bool:
        """Whether FSDP2 gathers weights in bfloat16."""
        return self.strategy != "ddp" and self.precision == "bf16"

    def can_have(self, micro_batches: int) -> bool:
        """Whether a step can be divided into so many micro-batches."""
        return True

    def expert_parallelism(self) -> int:
        """Number of data-parallel ranks that divide the experts of each layer between them."""
        return 1

    def active_parameters(self, parameters: int) -> int:
        """Number of parameters that a token meets, by the convention "6 N": nominal_parameters, or the model's."""
        return self.nominal_parameters or parameters

    def fp8_recipe(self) -> str | None:
        """Name of torchao's recipe by which the layers' products are computed in FP8; None: they are not."""
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """A bound for an evaluation's metric: a lower bound (`at_least`) or an upper one."""

    metric: str
    bound: float
    at_least: bool

    def met(self, metrics: Mapping[str, float]) -> bool:
        """Whether these metrics, in the units of the model, meet the bound; NaN never does."""
        value = metrics[self.metric]
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        return f"{self.metric} {'>=' if self.at_least else '<='} {self.bound:g}"


def refuse_above(config: TrainingConfig, key: str, bound: str) -> None:
    """Compare two settings.

    Raises:
        ValueError: the setting `key` is larger than the setting `bound`.
    """
    value, most = getattr(config, key), getattr(config, bound)
    if value > most:
        raise ValueError(f"{key} = {value}; allowed: up to {bound} = {most}")


def pre_norm_parameters(num_layers: int, hidden_size: int) -> int:
    """Number of parameters of `num_layers` layers of GPT-2's kind, with biases, and of the last norm."""
    return num_layers * (12 * hidden_size**2 + 13 * hidden_size) + 2 * hidden_size


def pre_norm_flops(config: TrainingConfig, seq_length: int) -> int:
    """Floating-point operations of the forward pass of all layers of GPT-2's kind on `seq_length` tokens."""
    size = config.hidden_size
    return transformer_flops(
        seq_length=seq_length, num_layers=config.num_layers, hidden_size=size, kv_size=size, ffn_size=4 * size,
        ffn_matrices=2,
    )  # fmt: skip


def transformer_flops(
    *, seq_length: int, num_layers: int, hidden_size: int, kv_size: int, ffn_size: int, ffn_matrices: int
) -> int:
    """Floating-point operations of the forward pass of `num_layers` layers on one sequence.

    Sizes are in elements, `seq_length` in tokens. For each token: query and output projections, keys and values of
    `kv_size`, `ffn_matrices` matrices between hidden_size and ffn_size, and the two products with the seq_length keys
    and values; a multiply-add counts as two operations.

    Source: Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM" (2021),
    appendix, whose 24 s h^2 + 4 s^2 h per layer is the case kv_size = h with two matrices of h x 4 h (equation 3 adds
    the backward pass, recomputation and the logits).
    """
    projections = 2 * hidden_size * hidden_size + 2 * hidden_size * kv_size
    feed_forward = ffn_matrices * hidden_size * ffn_size
    attention = 2 * seq_length * hidden_size
    return 2 * seq_length * num_layers * (projections + feed_forward + attention)
