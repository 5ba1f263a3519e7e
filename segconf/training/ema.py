"""Moving average of the weights: a steadier model at no cost when it is used."""

import copy

import torch
from torch import Tensor, nn

WARM_UP_STEPS = 10


class WeightAverage:
    """A copy of a model whose weights and BatchNorm statistics follow the model slowly.

    After n steps the decay is `min(decay, (1 + n) / (10 + n))`, so that the random start is soon
    forgotten. Running means and variances are averaged like weights; counters are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        """Start from the present weights."""
        self.model = copy.deepcopy(model).eval()
        self.model.requires_grad_(requires_grad=False)
        self.steps = 0
        self._decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Move a little towards the weights after a step of the optimizer."""
        decay = min(self._decay, (1 + self.steps) / (WARM_UP_STEPS + self.steps))
        self.steps += 1
        for own, new in zip(
            self.model.state_dict().values(), model.state_dict().values(), strict=True
        ):
            if own.is_floating_point():
                own.lerp_(new, 1 - decay)
            else:
                own.copy_(new)

    def state_dict(self) -> dict[str, Tensor]:
        """Averaged weights."""
        return self.model.state_dict()

    def load_state_dict(self, weights: dict[str, Tensor], steps: int) -> None:
        """Continue where a checkpoint left off."""
        self.model.load_state_dict(weights)
        self.steps = steps
