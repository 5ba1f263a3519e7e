"""What an evaluation keeps of every image: exact, compact, or refused."""

import bisect
from dataclasses import fields

import numpy as np
import pytest
import torch

from segconf.errors import CheckpointError
from segconf.evaluation.image_counts import (
    COMPACT_GROUPS,
    ImageCounts,
    load_image_counts,
    save_image_counts,
)
from segconf.metrics.bootstrap import draw_units, resampled_metrics
from segconf.metrics.streaming import ConfidenceMetrics


@pytest.fixture
def counts():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(2, (12, 3000), generator=generator)
    noise = torch.randn(12, 2, 3000, generator=generator)
    signal = torch.nn.functional.one_hot(labels, 2).movedim(2, 1)
    logits = 3 * signal + noise * torch.linspace(0.5, 2.5, 12)[:, None, None]
    pooled, summaries = ConfidenceMetrics(), {}
    for number in range(12):
        own = ConfidenceMetrics()
        for metrics in (own, pooled):
            metrics.update(logits[number, None], labels[number, None])
        summaries[f"image {number}"] = own.summary()
    return ImageCounts(summaries, list(summaries), pooled.risk_coverage(), pooled.reliability())


def same(one, other):
    for field in fields(one):
        np.testing.assert_array_equal(getattr(one, field.name), getattr(other, field.name))


def test_everything_comes_back(counts, tmp_path):
    save_image_counts(tmp_path / "images.npz", counts)
    found = load_image_counts(tmp_path / "images.npz", way_out="")
    assert list(found.summaries) == list(counts.summaries)
    assert found.groups == counts.groups
    for one, other in zip(found.summaries.values(), counts.summaries.values(), strict=True):
        same(one, other)
    same(found.curve, counts.curve)
    same(found.reliability, counts.reliability)


def test_the_compact_form_is_small_and_close(counts, tmp_path):
    compact = counts.compact()
    groups = np.unique(np.concatenate([one.bins for one in compact.summaries.values()]))
    assert len(groups) <= COMPACT_GROUPS
    weights = draw_units(counts.groups, torch.Generator().manual_seed(0), resamples=50)
    full, close = (
        resampled_metrics(list(one.summaries.values()), weights) for one in (counts, compact)
    )
    for name, tolerance in {"aurc": 3e-4, "eaurc": 3e-4, "fpr95": 1e-2, "augrc": 1e-4}.items():
        np.testing.assert_allclose(close[name], full[name], rtol=0, atol=tolerance)
    for name in ("miou", "accuracy", "ece", "nll", "brier"):
        np.testing.assert_allclose(close[name], full[name], rtol=1e-6, atol=1e-8)
    files = tmp_path / "full.npz", tmp_path / "compact.npz"
    for file, one in zip(files, (counts, compact), strict=True):
        save_image_counts(file, one)
    assert files[1].stat().st_size < 0.6 * files[0].stat().st_size
    found = load_image_counts(files[1], way_out="")
    for one, other in zip(found.summaries.values(), compact.summaries.values(), strict=True):
        same(one, other)


def test_every_pixel_goes_to_the_group_at_or_below_its_bin(counts):
    merged = counts.compact().summaries
    groups = sorted({one for image in merged.values() for one in image.bins.tolist()})
    for name, whole in counts.summaries.items():
        assert (np.diff(merged[name].bins) < 0).all()
        for field in ("correct", "wrong"):
            expected = dict.fromkeys(merged[name].bins.tolist(), 0)
            for place, number in zip(whole.bins.tolist(), getattr(whole, field), strict=True):
                expected[groups[bisect.bisect_right(groups, place) - 1]] += number
            assert list(expected.values()) == getattr(merged[name], field).tolist()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("correct", lambda values: values[:-1]),
        ("wrong", lambda values: values.astype(float)),
        ("lengths", lambda values: values[::-1]),
        ("lengths", lambda values: values[:-1]),
        ("confusion", lambda values: values + 1),
        ("brier", lambda values: values * np.nan),
        ("calibration_gap", lambda values: values[:, 0]),
        ("cases", lambda values: values[[0] * 12]),
        ("curve_risk", lambda values: values[1:]),
        ("bins", None),
    ],
)
def test_damaged_files_are_refused(counts, tmp_path, name, change):
    path = tmp_path / "images.npz"
    save_image_counts(path, counts)
    arrays = dict(np.load(path))
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays[name])
    np.savez(path, **arrays)
    with pytest.raises(CheckpointError, match=r"not a readable evaluation .* Evaluate again\."):
        load_image_counts(path, way_out="Evaluate again.")
