import math

import numpy as np
import pytest
import torch

from segconf.metrics.bootstrap import (
    bootstrap_differences,
    bootstrap_metrics,
    draw_units,
    mean_interval,
    percentile_interval,
    resampled_metrics,
    resampled_unit,
)
from segconf.metrics.streaming import ConfidenceMetrics
from tests.references.two_level import resampled_differences


def images(seed, count, size=4000, classes=2, noise=1.5):
    """Logits (count, K, size) and labels; images differ in how hard they are."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(classes, (count, size), generator=generator)
    hardness = 0.3 + noise * torch.rand(count, 1, 1, generator=generator)
    signal = torch.nn.functional.one_hot(labels, classes).movedim(2, 1) * 2.0
    logits = signal + hardness * torch.randn(count, classes, size, generator=generator)
    return logits * 2, labels


def counted(logits, labels):
    metrics = ConfidenceMetrics(logits.shape[1])
    metrics.update(logits, labels)
    return metrics


def summaries(logits, labels):
    return [counted(z[None], y[None]).summary() for z, y in zip(logits, labels, strict=True)]


def draws(count, resamples, seed):
    """The images of each resample, drawn as documented: one index per image and resample."""
    return torch.randint(count, (resamples, count), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("protocol", ["strict", "paper"])
def test_equals_pooling_the_pixels_of_every_resample(classes, protocol):
    logits, labels = images(0, 12, classes=classes)
    values = [
        counted(logits[picks], labels[picks]).compute(protocol) for picks in draws(12, 45, seed=5)
    ]
    result = bootstrap_metrics(
        summaries(logits, labels),
        torch.Generator().manual_seed(5),
        resamples=45,
        level=0.8,
        protocol=protocol,
    )
    assert list(result) == list(values[0])
    for name, interval in result.items():
        ordered = sorted(value[name] for value in values)
        expected = ordered[4], ordered[40]  # the 5th and the 41st of 45
        # Coarse ranking bins: small sets feel them in FPR-95, the rest hardly.
        tolerance = 6e-3 if name == "fpr95" else 2e-4 if name == "aupr_error" else 1e-5
        assert interval == pytest.approx(expected, abs=tolerance), name


def noisy(logits, seed, noise):
    return logits + noise * torch.randn(logits.shape, generator=torch.Generator().manual_seed(seed))


def resampled(runs, labels, weights):
    return [resampled_metrics(summaries(logits, labels), weights) for logits in runs]


def pixels_of(logits, labels):
    """(confidence, is right) of every pixel of every image."""
    confidence, prediction = logits.double().softmax(1).max(1)
    return [
        list(zip(values.tolist(), right.tolist(), strict=True))
        for values, right in zip(confidence, prediction == labels, strict=True)
    ]


@pytest.mark.parametrize("paired", [True, False])
def test_differences_over_images_and_seeds_as_a_plain_loop(paired):
    logits, labels = images(1, 6, size=60)
    ours = [noisy(logits, seed, 0.4) for seed in (2, 3)]
    theirs = [noisy(logits, seed, 1.5) for seed in (4, 5, 6)[: 2 if paired else 3]]
    weights = draw_units("abcdef", torch.Generator().manual_seed(3), resamples=41)
    generator = torch.Generator().manual_seed(9)
    result = bootstrap_differences(
        *(resampled(runs, labels, weights) for runs in (ours, theirs)),
        generator,
        paired_seeds=paired,
    )
    generator.manual_seed(9)
    own = torch.randint(2, (41, 2), generator=generator).tolist()
    other = own if paired else torch.randint(3, (41, 3), generator=generator).tolist()
    found = resampled_differences(
        *([pixels_of(run, labels) for run in runs] for runs in (ours, theirs)),
        draws(6, 41, seed=3).tolist(),
        list(zip(own, other, strict=True)),
    )
    for name in ("aurc", "ece"):
        gaps = sorted(one[name][0] for one in found)
        fractions = sorted(one[name][0] / one[name][1] for one in found)
        # Of 41 values, 2.5% and 97.5% are the 2nd and the 40th.
        assert result.absolute[name] == pytest.approx((gaps[1], gaps[39]), abs=2e-4)
        assert result.relative[name] == pytest.approx((fractions[1], fractions[39]), abs=2e-3)


def values(*numbers):
    """Runs whose only metric is the same in each of 400 resamples: images do not matter."""
    return [{"aurc": np.full(400, number)} for number in numbers]


def test_seeds_are_drawn_by_hand():
    draw = torch.Generator().manual_seed(0)
    ours, theirs = values(0.5, 2.5), values(1.0, 4.0)
    # Together: the gaps of the seeds are -0.5 and -1.5, each drawn twice in a quarter of the cases.
    paired = bootstrap_differences(ours, theirs, draw, paired_seeds=True)
    assert paired.absolute["aurc"] == (-1.5, -0.5)
    assert paired.relative["aurc"] == (-0.5, -0.375)  # (0.5 - 1) / 1 and (2.5 - 4) / 4
    # Apart: the worst of ours meets the best of theirs in 1 of 16 cases, and the other way round.
    apart = bootstrap_differences(ours, theirs, draw)
    assert apart.absolute["aurc"] == (0.5 - 4.0, 2.5 - 1.0)
    # A single run a side: nothing is left to draw.
    alone = bootstrap_differences(values(2.0), values(1.0), draw)
    assert (alone.absolute["aurc"], alone.relative["aurc"]) == ((1.0, 1.0), (1.0, 1.0))
    with pytest.raises(ValueError, match="2 and 1 runs cannot be paired by seed"):
        bootstrap_differences(ours, values(1.0), draw, paired_seeds=True)


def test_a_seed_that_is_not_drawn_may_be_undefined():
    draw = torch.Generator().manual_seed(0)
    undefined = bootstrap_differences(values(math.nan, 3.0), values(1.0), draw)
    assert undefined.absolute["aurc"] == (2.0, 2.0)
    infinite = bootstrap_differences(values(math.inf, 3.0), values(1.0), draw)
    assert infinite.absolute["aurc"] == (2.0, math.inf)
    nothing = bootstrap_differences(values(1.0), values(0.0), draw)
    assert nothing.absolute["aurc"] == (1.0, 1.0)
    assert all(math.isnan(bound) for bound in nothing.relative["aurc"])


def test_differences_use_the_same_images_for_both():
    logits, labels = images(1, 10)
    weights = draw_units("abcdefghij", torch.Generator().manual_seed(3))
    same = resampled([logits, noisy(logits, 5, 0.3)], labels, weights)
    result = bootstrap_differences(same, same, torch.Generator(), paired_seeds=True)
    assert all(interval == (0.0, 0.0) for interval in result.absolute.values())
    assert all(interval == (0.0, 0.0) for interval in result.relative.values())


def test_identical_images_have_no_spread():
    logits, labels = images(4, 1)
    result = bootstrap_metrics(summaries(logits, labels) * 5, torch.Generator().manual_seed(0))
    low, high = result["aurc"]
    # Five times the same pixels; AURC of tied fives is close to, but not exactly, that of one.
    assert low == pytest.approx(high, abs=1e-15)


def test_undefined_metrics_and_empty_input():
    logits, labels = images(6, 3)
    right = summaries(logits, logits.argmax(1))
    result = bootstrap_metrics(right, torch.Generator().manual_seed(0), resamples=20)
    assert all(math.isnan(bound) for bound in result["fpr95"])
    assert result["aurc"] == (0.0, 0.0)
    ignored = summaries(logits, torch.full_like(labels, 255))
    empty = bootstrap_metrics(ignored, torch.Generator().manual_seed(0), resamples=20)
    assert all(math.isnan(bound) for interval in empty.values() for bound in interval)
    with pytest.raises(ValueError, match="no image"):
        bootstrap_metrics([], torch.Generator())
    with pytest.raises(ValueError, match="paired"):
        resampled_metrics(right[:2], np.ones((5, 3)))
    with pytest.raises(ValueError, match="level"):
        bootstrap_metrics(right, torch.Generator(), resamples=5, level=95)


def test_infinite_nll_only_where_it_was_drawn():
    certain = ConfidenceMetrics()
    certain.update_probabilities(np.array([[[0.0], [1.0]]]), np.array([[0]]))
    unsure = ConfidenceMetrics()
    unsure.update_probabilities(np.array([[[0.5], [0.5]]]), np.array([[0]]))
    result = bootstrap_metrics(
        [certain.summary(), *[unsure.summary()] * 3],
        torch.Generator().manual_seed(0),
        resamples=200,
        level=0.5,
    )
    # Not drawn with probability (3/4)^4 = 0.32: the lower quartile is finite, the upper is not.
    assert result["nll"] == (pytest.approx(math.log(2)), math.inf)


def test_units_are_drawn_as_often_as_there_are():
    weights = draw_units("abcdefg", torch.Generator().manual_seed(4), resamples=30)
    expected = [np.bincount(picks, minlength=7) for picks in draws(7, 30, seed=4).numpy()]
    np.testing.assert_array_equal(weights, expected)
    assert resampled_unit("abcdefg") == "images"


def test_images_of_a_group_are_drawn_together():
    groups = ["a", "b", "a", "c", "b", "a"]
    weights = draw_units(groups, torch.Generator().manual_seed(4), resamples=30)
    for row, picks in zip(weights, draws(3, 30, seed=4).tolist(), strict=True):
        assert row.tolist() == [picks.count("abc".index(name)) for name in groups]
    assert resampled_unit(groups) == "groups"


def test_groups_are_resampled_and_not_their_images():
    """Copies of an image in its group say nothing new: the interval is that of the images alone."""
    logits, labels = images(8, 6, size=500)
    alone = bootstrap_metrics(summaries(logits, labels), torch.Generator().manual_seed(1))
    copies = summaries(logits.repeat(4, 1, 1), labels.repeat(4, 1))
    together = bootstrap_metrics(copies, torch.Generator().manual_seed(1), groups="abcdef" * 4)
    apart = bootstrap_metrics(copies, torch.Generator().manual_seed(1))
    for name in ("miou", "accuracy", "aurc", "ece", "nll", "brier"):
        assert together[name] == pytest.approx(alone[name], rel=2e-3), name
        # Four times as many units: about half the width.
        assert np.ptp(apart[name]) < 0.7 * np.ptp(alone[name]), name


def test_interval_of_a_mean_over_groups_by_hand():
    values = np.array([0.2, 0.4, 1.0, math.nan])
    weights = np.array([[2, 2, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 2]], np.float64)
    # The means are 0.3, 1.0, 1.6 / 3 and, where only the undefined value was drawn, none.
    assert mean_interval(values, weights, level=0.9) == pytest.approx((0.3, 1.0))
    assert np.isnan(mean_interval(np.full(2, math.nan), np.ones((3, 2)))).all()


def test_interval_of_values_that_occurred():
    values = np.append(np.random.default_rng(0).permutation(100).astype(float), [math.nan] * 5)
    # Of the 100 defined ones, 5% are at most 4 and 95% at most 94.
    assert percentile_interval(values, level=0.9) == (4, 94)
    assert percentile_interval(np.array([1.0, math.inf]), level=0.9) == (1, math.inf)
    assert all(math.isnan(bound) for bound in percentile_interval(np.full(3, math.nan)))
