"""One step of the training: its loss by hand, what it records, and in which mode."""

import math
from contextlib import suppress
from dataclasses import replace

import pytest
import torch
from torch import nn

from segconf.data.training_set import Batch, TrainingStep
from segconf.history.predictions import PredictionHistory
from segconf.history.probabilities import ProbabilityHistory
from segconf.losses.ranking import random_partners
from segconf.losses.ranking_terms import total_loss
from segconf.methods.method import LossContext, method_of
from segconf.processes import ProcessGroup
from segconf.registry import METHODS
from segconf.runs.epochs import EpochSummary, Scores
from segconf.training.convergence import first_judged_epoch, validations_without_gain
from segconf.training.step import StepOptions, TwoViews, in_mode, ramped_weights, step_terms
from tests.references.aleatoric import sampled_cross_entropy
from tests.references.history import SlowHistory
from tests.references.ranking import normalize, ranking_loss
from tests.training_runs import settings

SIZE = (3, 4)
PIXELS = 12
LABELED, UNLABELED = [3, 1], [0, 4, 2]  # slots of the history
EPOCHS_BEFORE = 5
CONFIG = settings(training__method="consistency", loss__pairs="all")
METHOD = method_of(CONFIG)
OPTIONS = StepOptions(epoch=EPOCHS_BEFORE, record=True, rank=True, batch_norm_training=True)


class RedOverGreen(nn.Module):
    """Class 1 where red outweighs green: a prediction that can be told from the pixels."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(1.5))

    def forward(self, images):
        gap = self.weight * (images[:, 0] - images[:, 1])
        return torch.stack([-gap, gap], dim=1)


def make_step(seed=0):
    generator = torch.Generator().manual_seed(seed)

    def images(count):
        return torch.randn(count, 3, *SIZE, generator=generator)

    masks = torch.randint(0, 2, (2, *SIZE), generator=generator, dtype=torch.uint8)
    augmented_masks = torch.randint(0, 2, (2, *SIZE), generator=generator)
    masks[0, 0, 0] = augmented_masks[1, 2, 3] = 255
    return TrainingStep(
        augmented_images=images(2),
        augmented_masks=augmented_masks,
        labeled=Batch(torch.tensor(LABELED), images(2), masks),
        unlabeled=Batch(torch.tensor(UNLABELED), images(3), None),
    )


def make_histories(masks):
    """The same five epochs of random predictions in our history and in the slow one."""
    generator = torch.Generator().manual_seed(7)
    history = PredictionHistory(5, SIZE, labeled=sorted(LABELED), epochs=20)
    slow = SlowHistory()
    by_case = dict(zip(LABELED, masks, strict=True))
    every = torch.stack([by_case.get(case, torch.zeros_like(masks[0])) for case in range(5)])
    for epoch in range(EPOCHS_BEFORE):
        said = torch.randint(0, 2, (5, *SIZE), generator=generator, dtype=torch.uint8)
        history.record(torch.arange(5), said, epoch=epoch, masks=every)
        slow.record(range(5), said.flatten(1).tolist(), epoch, every.flatten(1).tolist())
    return history, slow


def context(history, config=CONFIG, seed=11):
    generator = torch.Generator().manual_seed(seed)
    return LossContext(config.loss, history, ProcessGroup(), generator, torch.device("cpu"))


def terms_of(network, step, history, options=OPTIONS):
    """The terms of the consistency ranking loss."""
    return step_terms(TwoViews(network), step, METHOD, options, context(history))


def by_hand(step, slow, weight=1.5):
    """The three terms of the step, in plain Python."""
    negative_logs = []
    for image, mask in zip(step.augmented_images, step.augmented_masks, strict=True):
        for red, green, label in zip(*image[:2].flatten(1).tolist(), mask.flatten(), strict=True):
            gap = weight * (red - green)
            if label != 255:
                right = gap if label == 1 else -gap
                negative_logs.append(-math.log(math.exp(right) / (math.exp(gap) + math.exp(-gap))))
    confidence, target, correctness = {}, {}, {}
    masks = dict(zip(LABELED, step.labeled.masks.flatten(1).tolist(), strict=True))
    images = dict(zip(LABELED, step.labeled.images, strict=True))
    images |= dict(zip(UNLABELED, step.unlabeled.images, strict=True))
    for case, image in images.items():
        gaps = [weight * (r - g) for r, g in zip(*image[:2].flatten(1).tolist(), strict=True)]
        confidence[case] = [1 / (1 + math.exp(-2 * abs(gap))) for gap in gaps]
        said = [[int(gap > 0) for gap in gaps]]
        slow.record([case], said, EPOCHS_BEFORE, [masks.get(case, [0] * PIXELS)])
        target[case] = slow.consistency(case)
        if case in masks:
            correctness[case] = slow.correctness(case)

    pairs = torch.Generator().manual_seed(11)

    def term(cases, targets, ignored=()):
        kept = [(c, p) for c in cases for p in range(PIXELS) if (c, p) not in ignored]
        normalized = normalize([targets[case][pixel] for case, pixel in kept])
        partner = random_partners(len(kept), pairs).tolist()
        return ranking_loss([confidence[case][p] for case, p in kept], normalized, partner)

    segmentation = sum(negative_logs) / len(negative_logs)
    correct = term(LABELED, correctness, ignored={(LABELED[0], 0)})
    consistent = (2 * term(LABELED, target) + 3 * term(UNLABELED, target)) / 5
    return segmentation, correct, consistent


def test_terms_equal_those_worked_out_pixel_by_pixel():
    step = make_step()
    history, slow = make_histories(step.labeled.masks)
    terms = terms_of(RedOverGreen(), step, history)

    segmentation, correctness, consistency = by_hand(step, slow)
    assert terms["supervised"].item() == pytest.approx(segmentation, rel=1e-5)
    assert terms["correctness"].item() == pytest.approx(correctness, rel=1e-5)
    assert terms["consistency"].item() == pytest.approx(consistency, rel=1e-5)
    # The two targets are different enough that one cannot stand in for the other.
    assert abs(correctness - consistency) > 0.01


def test_unaugmented_views_are_recorded_not_augmented_ones():
    step = make_step()
    history, slow = make_histories(step.labeled.masks)
    terms_of(RedOverGreen(), step, history)
    by_hand(step, slow)

    for case in range(5):
        ours = history.consistency(torch.tensor([case])).flatten().tolist()
        assert ours == pytest.approx(slow.consistency(case))
    for case in LABELED:
        ours = history.correctness(torch.tensor([case])).flatten().tolist()
        assert ours == pytest.approx(slow.correctness(case))


def test_the_gradient_is_that_of_the_weighted_sum():
    """Central difference of the loss by hand against backward."""
    step = make_step()
    history, _ = make_histories(step.labeled.masks)
    network = RedOverGreen()
    terms = terms_of(network, step, history)
    total_loss(terms, METHOD.weights(CONFIG.loss)).backward()

    def value(weight):
        parts = by_hand(step, make_histories(step.labeled.masks)[1], weight)
        return parts[0] + 0.5 * parts[1] + 0.15 * parts[2]

    expected = (value(1.5 + 1e-5) - value(1.5 - 1e-5)) / 2e-5
    assert network.weight.grad.item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("method", "correctness_counts", "consistency_counts"),
    [("softmax", False, False), ("crl", True, False), ("consistency", True, True)],
)
def test_terms_of_the_methods(method, correctness_counts, consistency_counts):
    step = make_step()
    if method != "consistency":
        step = replace(step, unlabeled=None)
    history = make_histories(step.labeled.masks)[0] if method != "softmax" else None
    config = settings(training__method=method, loss__pairs="all")
    chosen = method_of(config)
    options = StepOptions.of_epoch(config, chosen, EPOCHS_BEFORE)
    views = TwoViews(RedOverGreen())
    terms = step_terms(views, step, chosen, options, context(history, config))

    assert tuple(terms) == chosen.terms
    assert terms["supervised"] > 0
    assert bool(terms.get("correctness", 0) > 0) is correctness_counts
    assert bool(terms.get("consistency", 0) > 0) is consistency_counts


def test_without_unlabeled_images_consistency_is_ranked_on_the_labeled_ones():
    step = replace(make_step(), unlabeled=None)
    history, slow = make_histories(step.labeled.masks)
    terms = terms_of(RedOverGreen(), step, history)

    by_hand(make_step(), slow)
    gaps = (1.5 * (step.labeled.images[:, 0] - step.labeled.images[:, 1])).abs()
    confidence = (1 / (1 + (-2 * gaps).exp())).flatten().tolist()
    target = normalize([value for case in LABELED for value in slow.consistency(case)])
    pairs = torch.Generator().manual_seed(11)
    random_partners(2 * PIXELS - 1, pairs)  # drawn for the correctness term, one pixel ignored
    expected = ranking_loss(confidence, target, random_partners(2 * PIXELS, pairs).tolist())
    assert terms["consistency"].item() == pytest.approx(expected, rel=1e-5)


class ModeProbe(nn.Module):
    """Remembers in which mode it was called, and whether gradients were wanted."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.norm = nn.BatchNorm2d(3)
        self.calls = []

    def forward(self, images):
        self.calls.append((len(images), self.norm.training, torch.is_grad_enabled()))
        return self.weight * self.norm(images)[:, :2]


@pytest.mark.parametrize("training_mode", [True, False])
@pytest.mark.parametrize("rank", [True, False])
def test_only_the_unaugmented_pass_borrows_another_mode(training_mode, rank):
    step = make_step()
    history, _ = make_histories(step.labeled.masks)
    network = ModeProbe().train()
    options = replace(OPTIONS, batch_norm_training=training_mode, rank=rank)
    terms_of(network, step, history, options)

    assert network.calls == [(2, True, True), (5, training_mode, rank)]
    assert network.training
    assert network.norm.training


def test_the_mode_is_given_back_after_an_error():
    network = ModeProbe().train()
    with suppress(ZeroDivisionError), in_mode(network, training=False):
        assert not network.norm.training
        raise ZeroDivisionError
    assert network.norm.training


def test_no_unaugmented_pass_where_nothing_is_recorded_or_ranked():
    network = ModeProbe().train()
    options = replace(OPTIONS, record=False, rank=False)
    terms_of(network, make_step(), None, options)
    assert network.calls == [(2, True, True)]


@pytest.mark.parametrize(
    ("epoch", "record", "rank"),
    [(0, False, False), (1, False, False), (2, True, False), (3, True, False), (4, True, True)],
)
def test_history_and_ranking_begin_when_they_are_told_to(epoch, record, rank):
    config = settings(training__history_start=2, training__ranking_warmup=4)
    options = StepOptions.of_epoch(config, method_of(config), epoch)
    assert (options.record, options.rank) == (record, rank)


def test_a_sweep_replaces_the_record_of_the_steps():
    config = settings(training__history="sweep")
    options = StepOptions.of_epoch(config, method_of(config), 0)
    assert not options.record
    assert options.rank


class NoisyRedOverGreen(RedOverGreen):
    """Also says how noisy its logits are: as blue as the pixel is."""

    def forward(self, images):
        return torch.cat([super().forward(images), images[:, 1:3]], dim=1)


def test_the_aleatoric_term_is_the_sampled_likelihood_of_the_augmented_views():
    step = replace(make_step(), unlabeled=None)
    config = settings(training__method="aleatoric", loss__noise_samples=3)
    network = NoisyRedOverGreen()
    torch.manual_seed(4)
    method = method_of(config)
    options = StepOptions.of_epoch(config, method, 0)
    terms = step_terms(TwoViews(network), step, method, options, context(None, config))
    torch.manual_seed(4)
    noise = torch.randn(3, 2, 2, *SIZE).double().numpy()

    outputs = network(step.augmented_images).detach().double().numpy()
    masks = step.augmented_masks.numpy()
    losses = sampled_cross_entropy(outputs[:, :2], outputs[:, 2:], masks, noise)
    assert terms["supervised"].item() == pytest.approx(
        losses.sum() / (masks != 255).sum(), rel=1e-5
    )
    assert tuple(terms) == ("supervised",)


@pytest.mark.parametrize("method", ["softmax", "mcdropout"])
def test_methods_without_variance_use_the_cross_entropy(method):
    step = make_step()
    config = settings(training__method=method)
    chosen = method_of(config)
    options = StepOptions.of_epoch(config, chosen, 0)
    terms = step_terms(TwoViews(RedOverGreen()), step, chosen, options, context(None, config))
    segmentation, _, _ = by_hand(step, make_histories(step.labeled.masks)[1])
    assert terms["supervised"].item() == pytest.approx(segmentation, rel=1e-5)


def distilling_step():
    """A step, its histories, and the options under which `distillation` ranks and distils."""
    step = make_step()
    history = ProbabilityHistory(5, SIZE, labeled=sorted(LABELED), epochs=20, classes=2)
    generator = torch.Generator().manual_seed(3)
    means = torch.rand(5, 2, *SIZE, generator=generator).softmax(dim=1)
    masks = torch.zeros(5, *SIZE, dtype=torch.uint8)
    history.record(
        torch.tensor([0, 1, 3, 4]),  # case 2 has no past
        means[[0, 1, 3, 4]].argmax(dim=1),
        epoch=0,
        masks=masks[:4],
        probabilities=means[[0, 1, 3, 4]],
    )
    # Kept are log-odds from -8 to 8 in 256 levels.
    levels = ((torch.log(means[:, 1] / means[:, 0]) / 8 + 1) / 2 * 255).round()
    kept = 1 / (1 + torch.exp(-(levels / 255 * 2 - 1) * 8))
    return step, history, torch.stack([1 - kept, kept], dim=1)


def binary_costs(image, targets, weight=1.5):
    """-t log p - (1 - t) log (1 - p) of every pixel whose target is not 255."""
    costs = []
    for red, green, target in zip(*image[:2].flatten(1).tolist(), targets, strict=True):
        if target != 255:
            said = 1 / (1 + math.exp(-2 * weight * (red - green)))
            costs.append(-target * math.log(said) - (1 - target) * math.log(1 - said))
    return costs


@pytest.mark.parametrize("annotated", [True, False])
def test_distillation_is_the_cross_entropy_to_the_past_and_to_the_masks(annotated):
    config = settings(training__method="distillation")
    step, history, means = distilling_step()
    if not annotated:
        nothing = torch.full_like(step.labeled.masks, 255)
        step = replace(step, labeled=replace(step.labeled, masks=nothing))
    network = RedOverGreen()
    terms = step_terms(
        TwoViews(network), step, method_of(config), OPTIONS, context(history, config)
    )
    past, told = [], []
    for image, case in zip(step.unlabeled.images, UNLABELED, strict=True):
        if case != 2:
            past += binary_costs(image, means[case, 1].flatten().tolist())
    for image, mask in zip(step.labeled.images, step.labeled.masks, strict=True):
        told += binary_costs(image, mask.flatten().tolist())
    assert (len(past), len(told)) == (2 * PIXELS, 2 * PIXELS - 1 if annotated else 0)
    expected = sum(past) / len(past) + (0.5 * sum(told) / len(told) if annotated else 0)
    assert terms["distillation"].item() == pytest.approx(expected, rel=1e-5)
    # What the step says now is recorded, but it was not its own target.
    assert history.has_record(torch.tensor(UNLABELED)).all()


def test_distillation_waits_for_a_past():
    config = settings(training__method="distillation")
    step, history, _ = distilling_step()
    options = replace(OPTIONS, rank=False)
    chosen = method_of(config)
    terms = step_terms(TwoViews(RedOverGreen()), step, chosen, options, context(history, config))
    assert terms["distillation"].item() == 0


def test_flips_are_undone_before_anything_is_recorded_or_ranked():
    config = settings(training__method="distillation")
    step, plain, _ = distilling_step()
    _, flipped, _ = distilling_step()
    flips = {"labeled": [[True, False], [False, True]], "unlabeled": [[True, True]] * 3}
    turned = replace(
        step,
        **{
            name: replace(
                getattr(step, name),
                images=torch.stack(
                    [
                        image.flip([axis + 1 for axis in (0, 1) if flip[axis]])
                        for image, flip in zip(getattr(step, name).images, chosen, strict=True)
                    ]
                ),
                flips=torch.tensor(chosen),
            )
            for name, chosen in flips.items()
        },
    )
    found = [
        step_terms(
            TwoViews(RedOverGreen()), one, method_of(config), OPTIONS, context(history, config)
        )
        for one, history in ((step, plain), (turned, flipped))
    ]
    for name, term in found[0].items():
        torch.testing.assert_close(term, found[1][name])
    cases = torch.arange(5)
    torch.testing.assert_close(plain.mean(cases), flipped.mean(cases))
    torch.testing.assert_close(plain.consistency(cases), flipped.consistency(cases))


def test_terms_grow_along_the_ramp():
    training = settings(training__ranking_warmup=2, training__ranking_ramp=3).training
    weights = {"supervised": 1.0, "distillation": 2.0}
    grown = [ramped_weights(weights, training, epoch)["distillation"] for epoch in range(7)]
    assert grown == pytest.approx([0, 0, 0.5, 1, 1.5, 2, 2])
    assert ramped_weights(weights, training, 0)["supervised"] == 1


def validated(*scores):
    """Epochs with these pairs of mIoU and AURC; None where there was no validation."""
    return [
        EpochSummary(epoch, 1, {}, None if pair is None else Scores(*pair, ece=0.0, nll=0.0))
        for epoch, pair in enumerate(scores)
    ]


def test_validations_without_gain_by_hand():
    # A better mIoU in the second, a better AURC in the third, nothing new in the last two: equal
    # values are not better.
    course = validated((0.5, 9.0), (0.6, 9.5), None, (0.5, 8.0), None, (0.6, 8.0), (0.4, 8.5))
    counts = [validations_without_gain(course[:number], 0) for number in range(1, 8)]
    assert counts == [0, 0, 0, 0, 0, 1, 2]
    assert validations_without_gain(course, 6) == 1
    assert validations_without_gain(course, 7) == 0
    worse_after_the_warm_up = validated((0.9, 1.0), (0.5, 5.0), (0.6, 4.0))
    assert validations_without_gain(worse_after_the_warm_up, 1) == 2


def test_validations_of_averaged_weights_count_where_there_are_some():
    one, other = Scores(0.5, 5.0, 0, 0), Scores(0.6, 4.0, 0, 0)
    course = [EpochSummary(0, 1, {}, one, other), EpochSummary(1, 1, {}, other, one)]
    assert validations_without_gain(course, 0) == 1


def test_patience_waits_for_the_ranking_terms():
    training = settings(training__ranking_warmup=10, training__ranking_ramp=5).training
    assert first_judged_epoch(training, METHODS.get("consistency")) == 15
    assert first_judged_epoch(training, METHODS.get("mmce")) == 15
    assert first_judged_epoch(training, METHODS.get("softmax")) == 0
    assert first_judged_epoch(training, METHODS.get("cape")) == 2  # of 4 epochs
