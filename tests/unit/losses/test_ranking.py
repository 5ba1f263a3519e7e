"""Ranking losses against pencil and paper, slow loops and numeric gradients."""

import pytest
import torch

from segconf.conventions import IGNORE
from segconf.losses.ranking import (
    random_partners,
    ranking_loss,
    sampled_ranking_loss,
)
from segconf.losses.ranking_terms import (
    RankingOptions,
    consistency_term,
    correctness_term,
    normalize,
    total_loss,
)
from tests.references import ranking as slow

ALL_PAIRS = RankingOptions(pairs="all")


@pytest.fixture
def generator():
    return torch.Generator().manual_seed(7)


def random_pixels(count, generator):
    """Confidence with gradient and a target with many ties, in double precision."""
    confidence = torch.rand(count, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.randint(4, (count,), generator=generator).double() / 3
    return confidence, target


def test_three_pixels_worked_by_hand():
    confidence = torch.tensor([0.9, 0.5, 0.7], requires_grad=True)
    target = torch.tensor([0.25, 1.0, 0.5])
    partner = torch.tensor([1, 2, 0])

    loss = ranking_loss(confidence, target, partner)
    loss.backward()

    # (0, 1): 0.75 + 0.4 = 1.15    (1, 2): 0.5 + 0.2 = 0.7    (2, 0): 0.25 + 0.2 = 0.45
    assert loss.item() == pytest.approx((1.15 + 0.7 + 0.45) / 3)
    # 0 is too high twice, 1 too low twice, 2 too high once and too low once.
    assert confidence.grad.tolist() == pytest.approx([2 / 3, -2 / 3, 0.0])


def test_a_gap_that_is_wide_enough_costs_nothing():
    confidence = torch.tensor([0.9, 0.2], requires_grad=True)
    loss = ranking_loss(confidence, torch.tensor([0.75, 0.25]), torch.tensor([1, 0]))
    loss.backward()
    # 0.5 - 0.7 < 0 in both directions.
    assert loss.item() == 0
    assert confidence.grad.tolist() == [0, 0]


def test_equal_targets_cost_nothing():
    confidence = torch.tensor([0.9, 0.2, 0.4])
    assert ranking_loss(confidence, torch.full((3,), 0.5), torch.tensor([1, 2, 0])).item() == 0


def test_ranking_loss_equals_the_slow_loop(generator):
    confidence, target = random_pixels(60, generator)
    partner = random_partners(60, generator)
    expected = slow.ranking_loss(confidence.tolist(), target.tolist(), partner.tolist())
    assert ranking_loss(confidence, target, partner).item() == pytest.approx(expected)


def test_gradients_equal_numeric_ones(generator):
    confidence, target = random_pixels(12, generator)
    partner = random_partners(12, generator)
    assert torch.autograd.gradcheck(lambda k: ranking_loss(k, target, partner), confidence)
    assert torch.autograd.gradcheck(
        lambda k: sampled_ranking_loss(
            k, target, pairs=6, generator=torch.Generator().manual_seed(1)
        ),
        confidence,
    )


@pytest.mark.parametrize("count", [2, 3, 50])
def test_partners_form_one_cycle(count, generator):
    partner = random_partners(count, generator).tolist()
    visited = [0]
    for _ in range(count - 1):
        visited.append(partner[visited[-1]])
    assert sorted(visited) == list(range(count))
    assert partner[visited[-1]] == 0


def test_partners_of_one_and_of_no_pixel(generator):
    assert random_partners(1, generator).tolist() == [0]
    assert random_partners(0, generator).tolist() == []


def test_partners_come_from_the_generator():
    draws = [
        random_partners(30, torch.Generator().manual_seed(seed)).tolist() for seed in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize("pairs", ["all", 5])
@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_pixels_cost_nothing(pairs, count, generator):
    confidence = torch.rand(count, requires_grad=True)
    loss = sampled_ranking_loss(confidence, torch.ones(count), pairs=pairs, generator=generator)
    loss.backward()
    assert loss.item() == 0
    assert confidence.grad.tolist() == [0] * count


@pytest.mark.parametrize("pairs", ["all", 4])
def test_all_pairs_is_the_expectation_of_drawn_pairs(pairs, generator):
    confidence, target = random_pixels(8, generator)
    draws = torch.tensor(
        [
            sampled_ranking_loss(confidence, target, pairs=pairs, generator=generator).item()
            for _ in range(4000)
        ]
    )
    exact = slow.all_pairs_ranking_loss(confidence.tolist(), target.tolist())
    # Four standard errors; counting pixels against themselves would be off by 1/8, some 15 of them.
    assert draws.mean().item() == pytest.approx(exact, abs=4 * draws.std().item() / 4000**0.5)


def test_a_number_of_pairs_touches_at_most_two_pixels_each(generator):
    confidence = torch.zeros(1000, requires_grad=True)
    target = torch.rand(1000, generator=generator)
    sampled_ranking_loss(confidence, target, pairs=10, generator=generator).backward()
    # All pairs are short of their gap: each pulls two pixels apart by 1/10.
    assert confidence.grad.abs().sum().item() == pytest.approx(2.0)
    assert 10 < (confidence.grad != 0).sum() <= 20


def test_more_pairs_than_pixels_rank_each_pixel_once(generator):
    confidence, target = random_pixels(20, generator)
    state = generator.get_state()
    loss = sampled_ranking_loss(confidence, target, pairs=20, generator=generator)
    generator.set_state(state)
    partner = random_partners(20, generator).tolist()
    assert loss.item() == pytest.approx(
        slow.ranking_loss(confidence.tolist(), target.tolist(), partner)
    )


def test_normalize_worked_by_hand():
    # 0.2 .. 0.6 is stretched by 1 / 0.4.
    assert normalize(torch.tensor([0.2, 0.3, 0.6])).tolist() == pytest.approx([0, 0.25, 1])
    assert normalize(torch.tensor([[0.9, 0.9]])).tolist() == [[0, 0]]
    assert normalize(torch.tensor([])).tolist() == []


def expected_cycle_loss(confidence, target, generator):
    """The slow loop along the cycle that the generator draws next."""
    partner = random_partners(len(target), generator).tolist()
    return slow.ranking_loss(confidence, target, partner)


def test_correctness_term_normalises_and_ignores(generator):
    confidence = torch.tensor([[[0.5, 0.9], [0.1, 0.6]]], requires_grad=True)  # (1, 2, 2)
    correctness = torch.tensor([[[0.5, 0.75], [0.0, 0.75]]])
    masks = torch.tensor([[[1, 0], [IGNORE, 0]]])

    loss = correctness_term(confidence, correctness, masks, options=ALL_PAIRS, generator=generator)
    loss.backward()

    # Without the ignored pixel 0.5 and 0.75 become 0 and 1; along the cycle of three pixels:
    # 0.5 against 0.9: 1 - 0.4 = 0.6    0.5 against 0.6: 1 - 0.1 = 0.9    0.9 against 0.6: 0
    assert loss.item() == pytest.approx((0.6 + 0.9 + 0) / 3)
    assert confidence.grad.flatten().tolist() == pytest.approx([2 / 3, -1 / 3, 0, -1 / 3])


def test_correctness_term_without_ignored_pixels_equals_the_slow_loop(generator):
    confidence, correctness = torch.rand(2, 3, 4, 5, generator=generator, dtype=torch.float64)
    correctness = 0.4 + correctness / 3
    state = generator.get_state()
    masks = torch.ones(3, 4, 5, dtype=torch.uint8)
    loss = correctness_term(confidence, correctness, masks, options=ALL_PAIRS, generator=generator)
    target = slow.normalize(correctness.flatten().tolist())
    generator.set_state(state)
    expected = expected_cycle_loss(confidence.flatten().tolist(), target, generator)
    assert loss.item() == pytest.approx(expected)


def test_correctness_of_nothing_but_ignored_pixels_costs_nothing(generator):
    confidence = torch.rand(1, 2, 2, requires_grad=True)
    masks = torch.full((1, 2, 2), IGNORE)
    loss = correctness_term(
        confidence, torch.rand(1, 2, 2), masks, options=ALL_PAIRS, generator=generator
    )
    loss.backward()
    assert loss.item() == 0
    assert confidence.grad.count_nonzero() == 0


@pytest.mark.parametrize("normalization", ["separate", "joint"])
@pytest.mark.parametrize("pair_scope", ["group", "batch"])
@pytest.mark.parametrize("labeled", [0, 2, 5])
def test_consistency_term_equals_the_slow_loop(normalization, pair_scope, labeled, generator):
    confidence = torch.rand(5, 3, 4, generator=generator, dtype=torch.float64)
    consistency = torch.rand(5, 3, 4, generator=generator, dtype=torch.float64)
    consistency[:labeled] = 0.5 + consistency[:labeled] / 2
    consistency[labeled:] = 0.1 + consistency[labeled:] / 3
    options = RankingOptions(normalization=normalization, pair_scope=pair_scope, pairs="all")
    state = generator.get_state()
    loss = consistency_term(
        confidence, consistency, labeled=labeled, options=options, generator=generator
    )

    border = labeled * 12
    values = consistency.flatten().tolist()
    if normalization == "joint":
        target = slow.normalize(values)
    else:
        target = [
            value
            for group in (values[:border], values[border:])
            for value in (slow.normalize(group) if group else [])
        ]
    flat = confidence.flatten().tolist()
    generator.set_state(state)
    if pair_scope == "batch":
        expected = expected_cycle_loss(flat, target, generator)
    else:
        expected = 0.0
        for part in (slice(0, border), slice(border, 60)):
            size = len(flat[part])
            if size:
                expected += expected_cycle_loss(flat[part], target[part], generator) * size / 60
    assert loss.item() == pytest.approx(expected)


def test_pairs_within_groups_never_cross(generator):
    # Constant within each group, different between them: only pairs across cost something.
    confidence = torch.zeros(4, 2, 2)
    consistency = torch.tensor([1.0, 1.0, 0.0, 0.0]).view(4, 1, 1).expand(4, 2, 2)
    losses = {
        scope: consistency_term(
            confidence,
            consistency,
            labeled=2,
            options=RankingOptions(normalization="joint", pair_scope=scope, pairs="all"),
            generator=generator,
        ).item()
        for scope in ("group", "batch")
    }
    assert losses["group"] == 0
    assert losses["batch"] > 0


def test_half_precision_confidence_is_ranked_in_single_precision(generator):
    confidence = torch.full((1, 200, 200), 0.5, dtype=torch.bfloat16, requires_grad=True)
    consistency = torch.rand(1, 200, 200, generator=generator)
    loss = consistency_term(
        confidence, consistency, labeled=1, options=RankingOptions(pairs="all"), generator=generator
    )
    loss.backward()
    # Equal confidences cost the target gap: 1/3 on average for two uniform numbers.
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(1 / 3, abs=0.01)
    assert confidence.grad.dtype == torch.bfloat16


def test_total_loss_weighs_each_term():
    terms = {
        name: torch.tensor(value) for name, value in zip("abc", (1.0, 10.0, 100.0), strict=True)
    }
    total = total_loss(terms, {"a": 1.0, "b": 0.5, "c": 0.25})
    # 1 + 0.5 * 10 + 0.25 * 100
    assert total.item() == 31
