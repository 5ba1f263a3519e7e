"""A step with one image on the smallest grid: BatchNorm has nothing to average."""

import pytest
import torch
from torch import nn

from segconf.errors import TrainingError
from segconf.training.step import StepOptions, TwoViews


class Shrinking(nn.Module):
    """To one value per channel."""

    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)

    def forward(self, images):
        if images.shape[2] != 32:
            raise ValueError("a bug")
        return self.norm(images.mean(dim=(2, 3), keepdim=True))


OPTIONS = StepOptions(epoch=0, record=False, rank=False, batch_norm_training=True)


def test_a_single_image_is_refused_with_a_way_out():
    views = TwoViews(Shrinking().train())
    views(torch.zeros(2, 3, 32, 32), None, OPTIONS)
    with pytest.raises(TrainingError, match=r"32, 32: too small .*training\.batch_labeled"):
        views(torch.zeros(1, 3, 32, 32), None, OPTIONS)
    with pytest.raises(TrainingError, match="too small"):
        views(torch.zeros(2, 3, 32, 32), torch.zeros(1, 3, 32, 32), OPTIONS)


def test_other_errors_of_a_network_stay_what_they_are():
    with pytest.raises(ValueError, match="a bug"):
        TwoViews(Shrinking())(torch.zeros(2, 3, 16, 16), None, OPTIONS)
