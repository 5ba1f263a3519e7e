"""Soft Dice: by hand, against a loop, ignored pixels, absent classes, several processes."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from segconf.config.schema import LossConfig
from segconf.data.training_set import Batch
from segconf.losses.soft_dice import overlap_sums, soft_dice_loss
from segconf.methods.method import LossContext, StepOutputs
from segconf.methods.softmax import Softmax
from segconf.processes import ProcessGroup
from tests.references import dice as reference


def random_batch(classes=3, images=2, side=4, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(images, classes, side, side, generator=generator, dtype=torch.float64)
    masks = torch.randint(0, classes, (images, side, side), generator=generator, dtype=torch.uint8)
    masks[0, 0] = 255
    return logits, masks


def loss_of(logits, masks):
    return soft_dice_loss(overlap_sums(logits, masks))


def test_two_pixels_worked_by_hand():
    # Probabilities of class 1: 0.8 where the mask is 1, and 0.4 where it is 0.
    foreground = torch.tensor([0.8, 0.4], dtype=torch.float64)
    logits = torch.stack([1 - foreground, foreground]).log()[None, :, None]  # (1, 2, 1, 2)
    masks = torch.tensor([[[1, 0]]])
    sums = overlap_sums(logits, masks)
    torch.testing.assert_close(
        sums, torch.tensor([[0.6, 0.8], [0.8, 1.2], [1.0, 1.0]], dtype=torch.float64)
    )
    # Class 0: 2 * 0.6 / (0.8 + 1) = 2/3; class 1: 2 * 0.8 / (1.2 + 1) = 8/11.
    assert soft_dice_loss(sums).item() == pytest.approx(1 - (2 / 3 + 8 / 11) / 2)


def test_it_is_the_slow_loop():
    logits, masks = random_batch()
    expected = reference.soft_dice_loss(logits.tolist(), masks.tolist())
    assert loss_of(logits, masks).item() == pytest.approx(expected)


def test_a_perfect_prediction_costs_nothing_and_an_opposite_one_everything():
    masks = torch.tensor([[[0, 1], [1, 1]]])
    right = torch.stack([(masks == k).float() * 200 for k in range(2)], dim=1)
    assert loss_of(right, masks).item() == pytest.approx(0, abs=1e-6)
    assert loss_of(-right, masks).item() == pytest.approx(1, abs=1e-6)


def test_the_gradient_is_right():
    logits, masks = random_batch()
    assert torch.autograd.gradcheck(lambda x: loss_of(x, masks), logits.requires_grad_())


def test_a_class_that_does_not_occur_is_left_out():
    logits, _ = random_batch(classes=3)
    masks = torch.randint(0, 2, (2, 4, 4), generator=torch.Generator().manual_seed(1))
    hits, said, pixels = overlap_sums(logits, masks)
    expected = 1 - (2 * hits[:2] / (said[:2] + pixels[:2])).mean()
    torch.testing.assert_close(loss_of(logits, masks), expected)


def test_a_batch_without_a_labeled_pixel_costs_nothing():
    logits = torch.randn(1, 2, 3, 3, requires_grad=True)
    loss = loss_of(logits, torch.full((1, 3, 3), 255))
    loss.backward()
    assert loss.item() == 0
    assert (logits.grad == 0).all()


def terms(logits, masks, group, kind):
    context = LossContext(
        LossConfig(segmentation=kind), None, group, torch.Generator(), torch.device("cpu")
    )
    views = Batch(torch.arange(len(masks)), logits, masks)
    return Softmax().loss(StepOutputs(logits, masks, views, None, None, None), context)


@pytest.mark.parametrize("kind", ["cross_entropy", "dice", "dice_ce"])
def test_the_setting_chooses_the_supervised_loss(kind):
    logits, masks = random_batch()
    likelihood = cross_entropy(logits, masks.long(), ignore_index=255)
    parts = {"cross_entropy": [likelihood], "dice": [loss_of(logits, masks)]}
    expected = sum(parts.get(kind, [likelihood, loss_of(logits, masks)]))
    found = terms(logits, masks.long(), ProcessGroup(), kind)
    assert tuple(found) == ("supervised",)
    torch.testing.assert_close(found["supervised"], expected)


class TwoProcesses(ProcessGroup):
    """A process that knows what the other one sums up: first counts, then sums."""

    def __init__(self, others):
        object.__setattr__(self, "others", list(others))

    def total(self, value):
        return value + self.others.pop(0)


def test_two_processes_have_the_loss_and_the_gradient_of_one():
    logits, masks = random_batch(images=5)
    whole = logits.clone().requires_grad_()
    expected = loss_of(whole, masks)
    expected.backward()
    found = []
    for own, other in ((slice(0, 2), slice(2, 5)), (slice(2, 5), slice(0, 2))):
        part = logits[own].clone().requires_grad_()
        group = TwoProcesses([overlap_sums(logits[other], masks[other])])
        loss = terms(part, masks[own].long(), group, "dice")["supervised"]
        loss.backward()
        torch.testing.assert_close(loss, expected)
        found.append(part.grad)
    torch.testing.assert_close(torch.cat(found), whole.grad)
