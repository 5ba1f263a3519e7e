"""Optimizers against their equations, number by number; schedules of the learning rate."""

import math

import pytest
import torch
from torch import nn

from segconf.training.optimizer import build_optimizer, scheduled_rate
from tests.training_runs import settings

RATE, DECAY = 0.1, 0.01


def optimized(gradients, **changes):
    """A weight that starts at 2, after a step with each of these gradients."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 2.0)
    training = settings(training__learning_rate=RATE, **changes).training
    optimizer = build_optimizer(model, training)
    for gradient in gradients:
        model.weight.grad = torch.full((1, 1), gradient)
        optimizer.step()
    return model.weight.item()


def adam(gradients, *, l2=0.0, decoupled=0.0):
    """Kingma and Ba (2015), algorithm 1; Loshchilov and Hutter (2019), algorithm 2."""
    weight, first, second = 2.0, 0.0, 0.0
    for t, given in enumerate(gradients, 1):
        gradient = given + l2 * weight
        weight -= RATE * decoupled * weight
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        mean, variance = first / (1 - 0.9**t), second / (1 - 0.999**t)
        weight -= RATE * mean / (math.sqrt(variance) + 1e-8)
    return weight


def test_the_default_is_adam_without_weight_decay():
    assert optimized([0.3, -1.0, 0.5]) == pytest.approx(adam([0.3, -1.0, 0.5]))


@pytest.mark.parametrize(("name", "kind"), [("adam", "l2"), ("adamw", "decoupled")])
def test_weight_decay_of_adam(name, kind):
    found = optimized([0.3, -1.0, 0.5], training__optimizer=name, training__weight_decay=DECAY)
    assert found == pytest.approx(adam([0.3, -1.0, 0.5], **{kind: DECAY}))


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_sgd_by_hand(momentum):
    found = optimized(
        [1.0, -1.0],
        training__optimizer="sgd",
        training__weight_decay=DECAY,
        training__momentum=momentum,
    )
    # First step: 1 + 0.01 * 2 = 1.02, 2 - 0.1 * 1.02 = 1.898.
    # Second step: -1 + 0.01 * 1.898 = -0.98102, and the momentum times 1.02.
    assert found == pytest.approx(1.898 - 0.1 * (momentum * 1.02 - 0.98102))


def test_the_cosine_schedule_falls_to_nothing():
    # (1 + cos(pi / 3)) / 2 = 3 / 4 after a third, 1 / 2 half way.
    expected = [(0, 1), (1 / 3, 0.75), (0.5, 0.5), (2 / 3, 0.25), (1, 0)]
    for progress, factor in expected:
        rate = scheduled_rate(3e-4, "cosine", progress)
        assert rate == pytest.approx(3e-4 * factor, abs=1e-12)
        assert scheduled_rate(3e-4, "constant", progress) == 3e-4


def test_steps_divide_by_ten_twice():
    rates = [scheduled_rate(0.1, "steps", epoch / 300) for epoch in (0, 149, 150, 249, 250, 299)]
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
