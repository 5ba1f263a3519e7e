"""MMCE: by hand, against a loop, its gradient, degenerate cases; the method around it."""

import math

import pytest
import torch

from segconf.config.schema import LossConfig
from segconf.data.training_set import Batch
from segconf.losses.kernel_calibration import mmce, sampled_rows
from segconf.methods.method import LossContext, StepOutputs
from segconf.methods.mmce import KernelCalibration
from segconf.processes import ProcessGroup
from tests.references import calibration_losses as reference


def samples(count=30, seed=0):
    generator = torch.Generator().manual_seed(seed)
    confidence = 0.5 + 0.5 * torch.rand(count, generator=generator, dtype=torch.float64)
    return confidence, torch.randint(0, 2, (count,), generator=generator).double()


def test_two_predictions_worked_by_hand():
    # Gaps 1 - 0.9 = 0.1 and 0 - 0.7 = -0.7; kernel exp(-0.2 / 0.4) between them, 1 with itself.
    # 0.01 + 0.49 - 2 * 0.07 * exp(-0.5), divided by 2^2.
    expected = math.sqrt((0.5 - 0.14 * math.exp(-0.5)) / 4)
    assert mmce(torch.tensor([0.9, 0.7]), torch.tensor([1.0, 0.0])).item() == pytest.approx(
        expected
    )


def test_it_is_the_slow_loop():
    confidence, correct = samples()
    expected = reference.mmce(confidence.tolist(), correct.tolist())
    assert mmce(confidence, correct).item() == pytest.approx(expected)


def test_the_gradient_is_right():
    confidence, correct = samples(8)
    assert torch.autograd.gradcheck(lambda x: mmce(x, correct), confidence.requires_grad_())


@pytest.mark.parametrize("count", [0, 3])
def test_nothing_to_improve_has_no_gradient(count):
    confidence = torch.ones(count, requires_grad=True)
    loss = mmce(confidence, torch.ones(count))
    loss.backward()
    assert loss.item() == 0
    assert confidence.grad.tolist() == [0.0] * count


def test_overconfidence_costs_more_than_calibration():
    correct = torch.tensor([1.0] * 8 + [0.0] * 2)
    costs = [mmce(torch.full((10,), r), correct).item() for r in (0.8, 0.9, 0.99)]
    assert costs == pytest.approx([0.0, 0.1, 0.19], abs=1e-5)


def test_a_sample_has_no_repetitions_and_follows_the_generator():
    assert sampled_rows(5, 5, torch.Generator()) == slice(None)
    one, again = (sampled_rows(100, 40, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(one, again)
    assert len(set(one.tolist())) == 40


def terms(logits, masks, pixels=2048, seed=0):
    context = LossContext(
        LossConfig(mmce_pixels=pixels),
        None,
        ProcessGroup(),
        torch.Generator().manual_seed(seed),
        torch.device("cpu"),
    )
    views = Batch(torch.arange(len(masks)), logits, masks)
    return KernelCalibration().loss(StepOutputs(logits, masks, views, None, None, None), context)


def test_the_method_leaves_out_ignored_pixels_and_samples_the_others():
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(2, 3, 4, 4, generator=generator, dtype=torch.float64)
    masks = torch.randint(0, 3, (2, 4, 4), generator=generator)
    masks[0, 1:] = 255
    confidence, prediction = logits.softmax(dim=1).max(dim=1)
    counted = masks != 255
    confidence, correct = confidence[counted], (prediction == masks)[counted].double()
    found = terms(logits, masks)
    assert tuple(found) == KernelCalibration.terms
    assert found["mmce"].item() == pytest.approx(
        reference.mmce(confidence.tolist(), correct.tolist())
    )
    rows = torch.randperm(20, generator=torch.Generator().manual_seed(5))[:7]
    assert terms(logits, masks, pixels=7, seed=5)["mmce"].item() == pytest.approx(
        reference.mmce(confidence[rows].tolist(), correct[rows].tolist())
    )
