"""The point-wise ablation: confidence pulled to the normalised target itself."""

import pytest
import torch

from segconf.conventions import IGNORE
from segconf.losses.ranking_terms import (
    RankingOptions,
    consistency_term,
    correctness_term,
    pointwise_loss,
)
from tests.references import ranking as slow

UNUSED = torch.Generator()


def options(normalization="separate", pair_scope="group"):
    return RankingOptions(normalization, pair_scope, target="pointwise")


def test_three_pixels_worked_by_hand():
    confidence = torch.tensor([0.9, 0.5, 0.7], requires_grad=True)
    loss = pointwise_loss(confidence, torch.tensor([0.0, 0.75, 1.0]))
    loss.backward()
    # 0.9 + 0.25 + 0.3
    assert loss.item() == pytest.approx(1.45 / 3)
    assert confidence.grad.tolist() == pytest.approx([1 / 3, -1 / 3, -1 / 3])


@pytest.mark.parametrize("count", [0, 1, 4])
def test_a_constant_target_costs_nothing(count):
    confidence = torch.rand(count, requires_grad=True)
    loss = pointwise_loss(confidence, torch.zeros(count))
    loss.backward()
    assert loss.item() == 0
    assert confidence.grad.count_nonzero() == 0


def test_gradients_equal_numeric_ones():
    generator = torch.Generator().manual_seed(3)
    confidence = torch.rand(12, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(4, (12,), generator=generator).double() / 3
    assert torch.autograd.gradcheck(lambda k: pointwise_loss(k, target), confidence)


def test_correctness_is_normalised_without_ignored_pixels():
    confidence = torch.tensor([[[0.9, 0.5], [0.6, 0.2]]])
    correctness = torch.tensor([[[0.5, 0.75], [0.5, 0.0]]])
    masks = torch.tensor([[[0, 1], [0, IGNORE]]])
    loss = correctness_term(confidence, correctness, masks, options=options(), generator=UNUSED)
    # Without the ignored pixel 0.5 and 0.75 become 0 and 1: 0.9 + 0.5 + 0.6
    assert loss.item() == pytest.approx(2.0 / 3)


@pytest.mark.parametrize("normalization", ["separate", "joint"])
@pytest.mark.parametrize("pair_scope", ["group", "batch"])
@pytest.mark.parametrize("labeled", [0, 2, 5])
def test_consistency_equals_the_slow_loop(normalization, pair_scope, labeled):
    generator = torch.Generator().manual_seed(7)
    confidence = torch.rand(5, 3, 4, generator=generator, dtype=torch.float64)
    consistency = torch.rand(5, 3, 4, generator=generator, dtype=torch.float64)
    consistency[:labeled] = 0.5 + consistency[:labeled] / 2
    loss = consistency_term(
        confidence,
        consistency,
        labeled=labeled,
        options=options(normalization, pair_scope),
        generator=UNUSED,
    )
    border, values = labeled * 12, consistency.flatten().tolist()
    groups = [values] if normalization == "joint" else [values[:border], values[border:]]
    target = [value for group in groups if group for value in slow.normalize(group)]
    distances = []
    for said, wanted in zip(confidence.flatten().tolist(), target, strict=True):
        distances.append(said - wanted if said > wanted else wanted - said)
    assert loss.item() == pytest.approx(sum(distances) / 60)


def test_a_constant_group_leaves_the_confidence_of_its_pixels_alone():
    confidence = torch.full((2, 1, 2), 0.5, requires_grad=True)
    consistency = torch.tensor([[[1.0, 1.0]], [[0.2, 0.4]]])
    for scope in ("group", "batch"):
        confidence.grad = None
        loss = consistency_term(
            confidence,
            consistency,
            labeled=1,
            options=options(pair_scope=scope),
            generator=UNUSED,
        )
        loss.backward()
        # The unlabeled pixels become 0 and 1; the labeled ones weigh, but cost nothing.
        assert loss.item() == pytest.approx((0.5 + 0.5) / 4)
        assert confidence.grad.flatten().tolist() == pytest.approx([0, 0, 0.25, -0.25])
