"""Counts the weights of a model, and what one rank of a pipeline stage holds of them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from workloads.job.training_job import TrainingJob


@dataclass(frozen=True, slots=True)
class StageWeights:
    """Weights on one rank of a stage: those that all data-parallel ranks share, and those of its experts.

    layers: of the shared ones, those inside layers; products: of these, those of linear layers, without norms and
    routers. widest: of one layer, with its experts, the most. matrices: sizes of the distinct weight matrices;
    TransformerEngine has a spare gradient for each.
    """

    shared: float
    layers: float
    products: float
    experts: float
    widest: float
    matrices: frozenset[float]


class StageKind(NamedTuple):
    """All that decides which weights a stage has: layers without experts and with them, word vectors, a head."""

    dense: int
    experts: int
    is_first: bool
    is_last: bool


def stage_sizes(job: TrainingJob) -> list[int]:
    """Layers of each chunk in order; chunk c lies on stage c modulo pp.

    Where the layers do not divide, embedding and head (or the head alone) stand in for a layer, as Megatron-LM's
    account_for_embedding_in_pipeline_split and account_for_loss_in_pipeline_split have it; else the rest is spread.
    """
    return [*_sizes(job.layers, job.pp * job.vpp)]


@lru_cache(maxsize=1 << 10)
def _sizes(layers: int, chunks: int) -> tuple[int, ...]:
    for first, last in ((0, 0), (1, 1), (0, 1)):
        each, rest = divmod(layers + first + last, chunks)
        if not rest and each >= 1 and (chunks > 1 or not last):
            sizes = [each] * chunks
            sizes[0] -= first
            sizes[-1] -= last
            return tuple(sizes)
    return tuple((at + 1) * layers // chunks - at * layers // chunks for at in range(chunks))


def kinds_of(job: TrainingJob) -> tuple[StageKind, ...]:
    """The kind of each stage, in their order."""
    return _kinds(job.layers, job.pp, job.vpp, job.leading_dense)


@lru_cache(maxsize=1 << 10)
def _kinds(layers: int, pp: int, vpp: int, leading: int) -> tuple[StageKind, ...]:
    """The same; `leading` layers have no experts."""
    found, begin = [(0, 0)] * pp, 0
    for chunk, size in enumerate(_sizes(layers, pp * vpp)):
        plain = max(0, min(begin + size, leading) - begin)
        dense, experts = found[chunk % pp]
        found[chunk % pp] = dense + plain, experts + size - plain
        begin += size
    return tuple(StageKind(*its, at == 0, at == pp - 1) for at, its in enumerate(found))


def layers_of(job: TrainingJob, stage: int) -> tuple[int, int]:
    """Dense layers and layers with experts on a stage."""
    return kinds_of(job)[stage][:2]


def attention_matrices(job: TrainingJob) -> list[float]:
    """Sizes of a layer's attention weights on one rank."""
    hidden, tp = job.hidden, job.tp
    if job.latent is not None:
        at = job.latent
        query = [hidden * at.q_lora, at.q_lora * job.heads * (at.nope + at.rope) / tp]
        if not at.q_lora:
            query = [hidden * job.heads * (at.nope + at.rope) / tp]
        keys = [hidden * (at.kv_lora + at.rope), at.kv_lora * job.heads * (at.nope + at.v) / tp]
        return [*query, *keys, job.heads * at.v * hidden / tp]
    width = job.heads * job.head_dim
    return [hidden * (width + 2 * job.kv_heads * job.head_dim) / tp, width * hidden / tp]


def mlp_matrices(job: TrainingJob, ffn: int, tp: int) -> list[float]:
    """Sizes of an MLP's weights on one rank."""
    return [(2 if job.gated else 1) * job.hidden * ffn / tp, ffn * job.hidden / tp] if ffn else []


def stage_weights(job: TrainingJob, stage: int) -> StageWeights:
    """The weights of a stage on one of its ranks."""
    dense, expert = layers_of(job, stage)
    attention = attention_matrices(job)
    mlp, shared = mlp_matrices(job, job.ffn, job.tp), mlp_matrices(job, job.shared_ffn, job.tp)
    one = mlp_matrices(job, job.moe_ffn, 1)
    norms = 2 * job.hidden
    products = dense * (sum(attention) + sum(mlp)) + expert * (sum(attention) + sum(shared))
    total = products + (dense + expert) * norms + expert * job.hidden * job.experts
    in_layers = total
    matrices = set(attention) if dense or expert else set()
    matrices |= set(mlp if dense else []) | set([*shared, *one] if expert else [])
    experts = sum(one) * job.experts / job.ep
    widest = max(
        sum(mlp) if dense else 0.0,
        sum(shared) + job.hidden * job.experts + experts if expert else 0.0,
    )
    vocabulary = job.vocab * job.hidden / job.tp
    if stage == 0:
        total += vocabulary
    if stage == job.pp - 1:
        total += 0 if job.tied and job.pp == 1 else vocabulary
        matrices.add(vocabulary)
    widest += sum(attention) + norms
    return StageWeights(total, in_layers, products, expert * experts, widest, frozenset(matrices))


def parameters(job: TrainingJob) -> float:
    """The elements of all weights of the model, embedding and head once each (once together where they are tied)."""
    dense = job.leading_dense
    attention = sum(attention_matrices(job)) * job.tp if job.latent is None else _latent_total(job)
    expert = job.layers - dense
    total = job.layers * (attention + 2 * job.hidden) + job.hidden
    total += dense * sum(mlp_matrices(job, job.ffn, 1))
    if expert:
        each = sum(mlp_matrices(job, job.shared_ffn, 1)) + job.hidden * job.experts
        total += expert * (each + job.experts * sum(mlp_matrices(job, job.moe_ffn, 1)))
    return total + (1 if job.tied else 2) * job.vocab * job.hidden


def _latent_total(job: TrainingJob) -> float:
    sizes = attention_matrices(job)
    # The projections into the small ranks are whole on each rank.
    whole = {0, 2} if len(sizes) == 5 else {1}
    return sum(size if at in whole else size * job.tp for at, size in enumerate(sizes))
