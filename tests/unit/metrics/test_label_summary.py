"""Counts of labels: those of one-pixel images one by one, and the same bootstrap."""

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from segconf.metrics.bootstrap import bootstrap_metrics, draw_units, resampled_metrics
from segconf.metrics.label_summary import LabelSummaries
from segconf.metrics.selective import auroc
from segconf.metrics.streaming import ConfidenceMetrics


def labels(classes, count=60, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(count, classes, generator=generator)
    return logits, torch.randint(classes, (count,), generator=generator)


def one_by_one(logits, truth):
    """The summary of each image, counted as a mask of one pixel."""
    found = []
    for image, label in zip(logits, truth, strict=True):
        metrics = ConfidenceMetrics(num_classes=logits.shape[1])
        metrics.update(image[None, :, None, None], label[None, None, None])
        found.append(metrics.summary())
    return found


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_every_label_is_counted_as_a_mask_of_one_pixel(classes):
    logits, truth = labels(classes)
    found = LabelSummaries.of(logits, truth)
    for row, one in enumerate(one_by_one(logits, truth)):
        assert one.bins.tolist() == [found.bins[row]]
        assert one.wrong.tolist() == [found.wrong[row]]
        assert one.confusion[found.truth[row], found.prediction[row]] == 1
        right = not found.wrong[row]
        assert one.calibration_gap[found.place[row]] == pytest.approx(
            right - found.confidence[row], abs=1e-6
        )
        assert one.nll == pytest.approx(found.nll[row], abs=1e-5)
        assert one.brier == pytest.approx(found.brier[row], abs=1e-5)
        assert one.counts_above(0.5) == tuple(found.counts_above(0.5)[row])


@pytest.mark.parametrize("protocol", ["strict", "paper"])
@pytest.mark.parametrize("classes", [2, 4])
def test_resamples_are_those_of_masks(classes, protocol):
    logits, truth = labels(classes)
    weights = draw_units([f"{n % 20}" for n in range(60)], torch.Generator().manual_seed(1))[:50]
    ours = resampled_metrics(LabelSummaries.of(logits, truth), weights, protocol=protocol)
    theirs = resampled_metrics(one_by_one(logits, truth), weights, protocol=protocol)
    for name, values in theirs.items():
        np.testing.assert_allclose(ours[name], values, rtol=1e-5, atol=1e-6, err_msg=name)


def test_parts_are_joined_and_brought_into_order():
    logits, truth = labels(5)
    whole = LabelSummaries.of(logits, truth)
    parts = [LabelSummaries.of(logits[k::2], truth[k::2]) for k in range(2)]
    order = np.array([number // 2 + 30 * (number % 2) for number in range(60)])
    joined = LabelSummaries.joined(parts).chosen(order)
    np.testing.assert_array_equal(joined.truth, whole.truth)
    np.testing.assert_array_equal(joined.nll, whole.nll)
    assert len(joined) == 60


def test_ten_thousand_labels_of_a_hundred_classes_are_resampled():
    logits, truth = labels(100, count=10_000)
    intervals = bootstrap_metrics(
        LabelSummaries.of(logits, truth), torch.Generator().manual_seed(0), resamples=20
    )
    low, high = intervals["accuracy"]
    assert low <= float((logits.argmax(dim=1) == truth).double().mean()) <= high


def test_arrays_that_do_not_belong_together_are_refused():
    logits, truth = labels(3)
    found = LabelSummaries.of(logits, truth)
    found.check(60)
    with pytest.raises(ValueError, match="labels_bins"):
        found.check(59)
    found.truth[4] = 3
    with pytest.raises(ValueError, match="labels_truth holds values that cannot"):
        found.check(60)


def test_auroc_against_scikit_learn():
    rng = np.random.default_rng(0)
    score, positive = rng.integers(0, 9, 80) / 8, rng.random(80) < 0.3
    assert auroc(score, positive) == pytest.approx(roc_auc_score(positive, score))
    assert np.isnan(auroc(score, np.ones(80, bool)))
