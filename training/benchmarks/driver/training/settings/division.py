"""Determines how many ranks hold one copy of a model's parameters between them. Needs no torch."""

Coordinates = dict[str, int]
"""A rank's place in each dimension of the layout's mesh, by the dimension's name."""


def ranks_of_a_copy(
    *,
    strategy: str,
    shard_size: int | None,
    tp_size: int,
    world_size: int,
    per_node: int,
    pp_size: int = 1,
    cp_size: int = 1,
) -> int:
    """The data-parallel ranks, 1 or more, that divide the parameters between them, on `world_size` ranks, `per_node` on
    each node, of which `tp_size` share each layer and `pp_size` times as many are a pipeline. The `cp_size` ranks that
    divide a sequence count as data-parallel ones: they average gradients.

    DDP: one; FSDP: all of them; HSDP: `shard_size`, or those of a node, so that parameters are put together within a
    node and only sums of gradients go between nodes.

    Source: Zhao et al., "PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel" (2023), section 3.2.2.

    Raises:
        ValueError: the ranks cannot be divided so.
    """
    if world_size % tp_size:
        raise ValueError(f"tensor_parallel_size = {tp_size} does not divide the {world_size} ranks")
    if world_size % (tp_size * pp_size):
        shared = f" with tensor_parallel_size = {tp_size}" if tp_size > 1 else ""
        raise ValueError(f"pipeline_parallel_size = {pp_size}{shared} does not divide the {world_size} ranks")
    dp_size = world_size // (tp_size * pp_size)
    if dp_size % cp_size:
        shared = f" with tensor_parallel_size = {tp_size}" if tp_size > 1 else ""
        raise ValueError(f"context_parallel_size = {cp_size}{shared} does not divide the {world_size} ranks")
    if strategy == "ddp":
        if tp_size > 1 and dp_size > 1:
            raise ValueError(
                f"tensor_parallel_size = {tp_size} on {world_size} ranks leaves {dp_size} data-parallel ranks;"
                " together with tensor parallelism these need strategy = 'fsdp' or 'hsdp'"
            )
        return 1
    if strategy == "fsdp":
        return dp_size
    if shard_size is None:
        if per_node % tp_size:
            raise ValueError(
                f"strategy = 'hsdp': a node's {per_node} ranks are no multiple of tensor_parallel_size = {tp_size};"
                f" set shard_size, which divides the {dp_size} data-parallel ranks"
            )
        shard_size = per_node // tp_size
    elif dp_size % shard_size:
        raise ValueError(f"shard_size = {shard_size} does not divide the {dp_size} data-parallel ranks")
    if shard_size % cp_size:
        raise ValueError(
            f"strategy = 'hsdp': the {shard_size} ranks of a copy (shard_size) are no multiple of"
            f" context_parallel_size = {cp_size}"
        )
    return shard_size
