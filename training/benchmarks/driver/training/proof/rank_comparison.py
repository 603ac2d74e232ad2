"""Keeps what the ranks of a training had at the last check, and describes it for the log. Needs no torch."""

import hashlib
from collections.abc import Sequence

from training.benchmarks.driver.training.proof.replicas import Departure, ReplicaState
from training.benchmarks.driver.training.settings.division import Coordinates
from training.benchmarks.driver.training.settings.schedule import applied_rate
from training.benchmarks.driver.training.settings.settings import TrainingConfig

# Hexadecimal digits of a hash in a log line, 64 bits.
SHOWN_DIGITS = 16
# Data-parallel ranks whose hashes a step's log line has.
MAX_LISTED = 128
# Parts of the full learning rate below which an update may be too small for float32.
_SMALL_RATE = 1e-3


class RankComparison:
    """The last check of a run of `total_steps`, whose ranks have the `places`; `departure`: the first found."""

    def __init__(self, places: Sequence[Coordinates], config: TrainingConfig, total_steps: int) -> None:
        self._places = places
        self._config = config
        self._total_steps = total_steps
        self._states: list[ReplicaState] = []
        self._last_parameters: tuple[int, ...] = ()
        self._first_step: int | None = None
        self._last_step: int | None = None
        self.departure: Departure | None = None

    def _note(self, step: int, parameters: tuple[int, ...]) -> None:
        """Keep the step of a check and this rank's checksums for the next one."""
        self._last_step, self._last_parameters = step, parameters
        if self._first_step is None:
            self._first_step = step

    def _expected_rate(self, step: int) -> float | None:
        """The learning rate of the update of `step`; None before any update of this process."""
        if self._first_step is None or step == self._first_step:
            return None
        return applied_rate(self._config, step, self._total_steps)

    def _moving_steps(self, step: int) -> int:
        """How many steps since the last check must change parameters by their rate; 0 if fewer than two do."""
        if self._last_step is None:
            return 0
        small = _SMALL_RATE * self._config.learning_rate
        steps = range(self._last_step + 1, step + 1)
        moving = sum(applied_rate(self._config, each, self._total_steps) > small for each in steps)
        return len(steps) if moving > 1 else 0

    def step_values(self, losses: Sequence[float], was_checked: bool) -> dict[str, object]:
        """The values of a step that a curve needs besides its mean loss: `losses` in nats, by data-parallel rank, and
        after a check the hashes of the samples and of the last micro-batch.
        """
        values: dict[str, object] = {}
        if 1 < len(losses) <= MAX_LISTED:
            values["rank_losses"] = [float(f"{loss:.7g}") for loss in losses]
        if was_checked:
            values |= {"data_order": self.orders(), "data": self._listed([state.data for state in self._states])}
        return values

    def record(self) -> dict[str, object]:
        """The last check for a log line, the same on all ranks: checksums as hexadecimal digits, losses in nats."""
        parameters = hashlib.sha256(repr([state.parameters for state in self._states]).encode()).hexdigest()
        losses = [state.loss for state in self._states]
        return {
            "ranks": len(self._states),
            "parameters": parameters[:SHOWN_DIGITS],
            "data_order": self.orders(),
            "shared_loss": losses[0],
            "shared_loss_spread": max(losses) - min(losses),
            "departed": None if self.departure is None else self.departure.sentence,
        }

    def orders(self) -> list[str]:
        """The hash of the samples of each data-parallel rank, the first MAX_LISTED ones."""
        return self._listed([state.order for state in self._states])

    def _listed(self, of_rank: Sequence[int]) -> list[str]:
        """Hashes by rank as those of the data-parallel ranks, in hexadecimal digits."""
        found = {place["dp"]: number for place, number in zip(self._places, of_rank, strict=True)}
        return [f"{number & ((1 << 64) - 1):016x}" for _, number in sorted(found.items())[:MAX_LISTED]]


def generator_seed(config: TrainingConfig, dp_rank: int) -> int:
    """Seed of the generator of dropout: the same for the ranks that share a layer."""
    return (config.seed << 20) + dp_rank
