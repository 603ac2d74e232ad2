"""The barest loop of a model that make bench compares the trainer with, on one rank or in torch's DDP."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # torch is imported by the ranks alone
    from training.benchmarks.driver.training.benchmark import TrainingBenchmark
    from training.benchmarks.driver.training.settings.settings import TrainingConfig
    from training.benchmarks.driver.workload.process_group import ProcessGroup


class BareLoop:
    """What anybody would write, without log, schedule and the losses of other ranks: what a loop of one's own adds for
    these counts as the trainer's.
    """

    def __init__(self, benchmark: "TrainingBenchmark[Any]", config: "TrainingConfig", group: "ProcessGroup") -> None:
        import torch

        from training.benchmarks.bert.pytorch.packed import PackedSet

        samples = benchmark.synthetic_data(config).train
        # The model packs a batch that is not packed yet.
        samples = samples.unpacked if isinstance(samples, PackedSet) else samples
        self._data = {name: tensor.int() for name, tensor in samples[list(range(len(samples)))].items()}
        self._count = len(samples)
        model = benchmark.build_model(config).train()
        model.make_constants(torch.device("cpu"))
        matrices = [p for p in model.parameters() if p.ndim > 1]
        others = [p for p in model.parameters() if p.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
        self._optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, fused=True)
        self._parameters = [*model.parameters()]
        self._ranks, self._rank = group.placement.world_size, group.placement.rank
        self._model: Any = model
        if self._ranks > 1:
            self._model = torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
        self._batch_size, self._max_norm = config.train_batch_size, config.max_grad_norm

    def steps(self) -> Iterator[None]:
        """One training step after the other, without end."""
        import torch

        step_size = self._ranks * self._batch_size
        while True:
            order = torch.randperm(self._count)
            for begin in range(self._rank * self._batch_size, self._count - step_size + 1, step_size):
                chosen = order[begin : begin + self._batch_size]
                batch = {name: tensor[chosen].long() for name, tensor in self._data.items()}
                self._optimizer.zero_grad()
                loss = self._model(batch)["loss"]
                loss.backward()
                if self._max_norm is not None:
                    torch.nn.utils.clip_grad_norm_(self._parameters, self._max_norm)
                self._optimizer.step()
                yield
