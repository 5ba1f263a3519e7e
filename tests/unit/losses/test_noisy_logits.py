"""Noisy logits: their likelihood against a slow loop, and its limits."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from segconf.losses.noisy_logits import mean_and_log_variance, sampled_cross_entropy, spread_noise
from tests.references import aleatoric as reference

BATCH, CLASSES, SIZE, DRAWS = 2, 3, (3, 4), 5


def random_inputs(seed=0):
    """Means and log-variances, masks with an ignored pixel, noise; double precision."""
    generator = torch.Generator().manual_seed(seed)
    mean, log_variance = torch.randn(
        2, BATCH, CLASSES, *SIZE, generator=generator, dtype=torch.float64
    )
    masks = torch.randint(0, CLASSES, (BATCH, *SIZE), generator=generator)
    masks[1, 2, 0] = 255
    noise = torch.randn(DRAWS, BATCH, CLASSES, *SIZE, generator=generator, dtype=torch.float64)
    return mean, log_variance, masks, noise


def test_one_pixel_worked_by_hand():
    mean = torch.tensor([0.0, 1.0]).reshape(1, 2, 1, 1)
    log_variance = torch.tensor([math.log(4.0), math.log(0.25)]).reshape(1, 2, 1, 1)
    noise = torch.tensor([[1.0, 0.0], [0.0, -2.0]]).reshape(2, 1, 2, 1, 1)
    # Logits (0 + 2 * 1, 1) and (0, 1 - 0.5 * 2): the second class has sigmoid(-1), sigmoid(0).
    likelihood = (1 / (1 + math.e) + 0.5) / 2
    loss = sampled_cross_entropy(mean, log_variance, torch.ones(1, 1, 1, dtype=torch.long), noise)
    assert loss.item() == pytest.approx(-math.log(likelihood))


def test_equals_the_slow_loop():
    inputs = random_inputs()
    expected = reference.sampled_cross_entropy(*(values.numpy() for values in inputs))
    loss = sampled_cross_entropy(*inputs)
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-12)
    assert loss[1, 2, 0] == 0
    assert (loss != 0).sum() == BATCH * 12 - 1


@pytest.mark.parametrize("log_variance", [-math.inf, -80.0])
def test_without_variance_it_is_the_cross_entropy(log_variance):
    mean, _, masks, noise = random_inputs()
    loss = sampled_cross_entropy(mean, torch.full_like(mean, log_variance), masks, noise)
    expected = cross_entropy(mean, masks, ignore_index=255, reduction="none")
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-12)


def test_gradients():
    mean, log_variance, masks, noise = random_inputs()
    mean.requires_grad_()
    log_variance.requires_grad_()
    assert torch.autograd.gradcheck(
        lambda m, v: sampled_cross_entropy(m, v, masks, noise), (mean, log_variance)
    )


def test_an_ignored_pixel_has_no_gradient():
    mean, log_variance, masks, noise = random_inputs()
    mean.requires_grad_()
    sampled_cross_entropy(mean, log_variance, masks, noise).sum().backward()
    assert (mean.grad[1, :, 2, 0] == 0).all()
    assert (mean.grad[1, :, 2, 1] != 0).all()


@pytest.mark.parametrize("log_variance", [100.0, 1000.0, math.inf])
def test_an_absurd_variance_stays_finite(log_variance):
    mean = torch.tensor([[[[300.0]], [[-300.0]]]], requires_grad=True)
    variance = torch.full_like(mean, log_variance).requires_grad_()
    noise = torch.tensor([[1.0, -1.0], [-0.5, 0.5]]).reshape(2, 1, 2, 1, 1)
    loss = sampled_cross_entropy(mean, variance, torch.ones(1, 1, 1, dtype=torch.long), noise)
    loss.sum().backward()
    # The second draw is right beyond doubt, the first is wrong: a likelihood of one half.
    assert loss.item() == pytest.approx(math.log(2))
    assert mean.grad.isfinite().all()
    assert variance.grad.isfinite().all()


def test_means_come_before_log_variances():
    outputs = torch.arange(6.0).reshape(1, 6, 1, 1)
    mean, log_variance = mean_and_log_variance(outputs)
    assert mean.flatten().tolist() == [0, 1, 2]
    assert log_variance.flatten().tolist() == [3, 4, 5]


def test_spread_noise_has_the_quantiles_of_the_normal_distribution():
    noise = spread_noise(4, 3, torch.Generator().manual_seed(0))
    # From a table of the normal distribution: at 1/8 and 3/8 it is -1.15035 and -0.31864.
    expected = [-1.15035, -0.31864, 0.31864, 1.15035]
    for column in noise.T:
        assert sorted(column.tolist()) == pytest.approx(expected, abs=1e-5)
    assert len({tuple(column.tolist()) for column in noise.T}) == 3
    assert spread_noise(1, 2, torch.Generator()).tolist() == [[0.0, 0.0]]
