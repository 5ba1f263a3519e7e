"""Surrogates of confidence against pencil and paper, and against slow loops."""

import math
from pathlib import Path

import pytest
import torch

from segconf.comparison.surrogates import (
    SURROGATES,
    RunSurrogates,
    SurrogateReplay,
    SurrogateScores,
    as_csv,
    as_markdown,
)
from tests.references import metrics as reference
from tests.references.history import SlowHistory

COUNTS = ("L-count", "L-margin", "L-entropy")


def test_three_epochs_of_one_image_by_hand():
    mask = torch.tensor([[[0, 1], [1, 0]]])
    # Log-odds of class 1; the sign is the prediction, the size the softmax confidence.
    said = [
        [[-1.0, -2.0], [3.0, 4.0]],  # 0 0 1 1: right, wrong, right, wrong
        [[-1.0, 2.0], [3.0, -4.0]],  # 0 1 1 0: all right
        [[1.0, 2.0], [3.0, -4.0]],  # 1 1 1 0: wrong, right, right, right
    ]
    replay = SurrogateReplay(1, (2, 2), classes=2, snapshots=3)
    found = []
    for epoch, values in enumerate(said, start=1):
        gap = torch.tensor([values])  # (1, 2, 2)
        logits = torch.stack([torch.zeros_like(gap), gap], dim=1)
        found.append(replay.replay([(torch.tensor([0]), logits, mask)], epoch=epoch))

    first, second, third = found
    # Softmax: wrong, right, wrong, right by descending confidence; risks 1, 1/2, 2/3, 1/2.
    assert first.aurc["softmax"] == pytest.approx((1 + 1 / 2 + 2 / 3 + 1 / 2) / 4)
    # Nothing was compared yet: all tied, so that every risk is the error rate of 1/2.
    assert all(first.aurc[name] == 0.5 for name in ("consistency", *COUNTS))
    # Correctness is 1, 0, 1, 0; the best possible order: risks 0, 0, 1/3, 1/2.
    best = (1 / 3 + 1 / 2) / 4
    assert first.aurc["correctness"] == pytest.approx(best)
    assert first.eaurc["correctness"] == pytest.approx(0, abs=1e-12)
    assert first.eaurc["consistency"] == pytest.approx(0.5 - best)
    # No errors, no risk.
    assert set(second.aurc.values()) == {0.0}
    # Predictions 001, 011, 111, 100: consistency 1/2, 1/2, 1, 1/2. Pixel 0 is wrong, one of three
    # that are tied: risk 0, then a third of an error with each further pixel.
    assert third.aurc["consistency"] == pytest.approx((0 + 1 / 6 + 2 / 9 + 1 / 4) / 4)
    # Correctness 2/3, 2/3, 1, 2/3 and frequencies 2:1, 2:1, 3:0, 2:1: the same groups.
    assert all(
        third.aurc[name] == pytest.approx(third.aurc["consistency"])
        for name in ("correctness", *COUNTS)
    )
    # The wrong pixel is the least confident one: nothing could be better.
    assert third.aurc["softmax"] == pytest.approx(1 / 16)
    assert third.eaurc["softmax"] == pytest.approx(0, abs=1e-12)
    assert [scores.epoch for scores in found] == [1, 2, 3]


def slow_scores(history, masks, logits):
    """AURC and E-AURC of every surrogate over all pixels that are not ignored."""
    values = {name: [] for name in SURROGATES}
    correct = []
    for case, mask in enumerate(masks):
        shares = [history.frequency(case, label) for label in range(3)]
        consistency, correctness = history.consistency(case), history.correctness(case)
        for pixel, truth in enumerate(mask):
            if truth == 255:
                continue
            scores = logits[case][pixel]
            correct.append(max(range(3), key=lambda label, s=scores: s[label]) == truth)
            ordered = sorted((round(share[pixel], 6) for share in shares), reverse=True)
            entropy = -sum(share * math.log(share) for share in ordered if share)
            values["softmax"].append(reference.log_odds(scores))
            values["consistency"].append(consistency[pixel])
            values["correctness"].append(correctness[pixel])
            values["L-count"].append(ordered[0])
            values["L-margin"].append(round(ordered[0] - ordered[1], 5))
            values["L-entropy"].append(-round(entropy, 5))
    best = reference.optimal_aurc(correct)
    aurc = {name: reference.aurc(ranked, correct) for name, ranked in values.items()}
    return aurc, {name: value - best for name, value in aurc.items()}


@pytest.mark.parametrize("batch", [1, 4])
def test_three_classes_equal_the_slow_loop(batch):
    generator = torch.Generator().manual_seed(5)
    masks = torch.randint(3, (4, 4, 4), generator=generator)
    masks[1, 2, :2] = 255
    cases = torch.arange(4)
    replay = SurrogateReplay(4, (4, 4), classes=3, snapshots=7)
    slow = SlowHistory()
    drift = torch.randn(4, 3, 4, 4, generator=generator)
    # After 7 epochs, margins 4 - 3 and 3 - 2 are equal as counts, but not as rounded shares.
    for epoch in range(7):
        logits = drift + torch.randn(4, 3, 4, 4, generator=generator)
        parts = [torch.arange(start, start + batch) for start in range(0, 4, batch)]
        found = replay.replay(
            [(cases[part], logits[part], masks[part]) for part in parts], epoch=3 * epoch
        )
        flat_masks = masks.flatten(1).tolist()
        slow.record(range(4), logits.argmax(dim=1).flatten(1).tolist(), epoch, flat_masks)
        pixels = logits.flatten(2).transpose(1, 2).tolist()
        aurc, eaurc = slow_scores(slow, flat_masks, pixels)
        for name in SURROGATES:
            assert found.aurc[name] == pytest.approx(aurc[name], rel=1e-6), name
            assert found.eaurc[name] == pytest.approx(eaurc[name], rel=1e-6, abs=1e-9), name
    # The three frequencies are different surrogates now.
    assert len({round(found.aurc[name], 9) for name in SURROGATES}) == len(SURROGATES)


def run_of(name, softmax, consistency):
    aurc = dict.fromkeys(SURROGATES, 0.5) | {"softmax": softmax, "consistency": consistency}
    eaurc = {key: value - 0.01 for key, value in aurc.items()}
    return RunSurrogates(Path("runs") / name, name, 7, (SurrogateScores(30, aurc, eaurc),))


def test_the_gap_is_shown_with_and_without_the_ranking_loss():
    runs = [run_of("softmax", 0.030, 0.021), run_of("consistency", 0.018, 0.020)]
    lines = as_markdown(runs).splitlines()
    assert lines[2:] == [
        "| softmax | softmax | 30 | 30.00 | 21.00 | 9.00 | 20.00 | 11.00 | 9.00 |",
        "| consistency | consistency | 30 | 18.00 | 20.00 | 2.00 | 8.00 | 10.00 | 2.00 |",
    ]
    rows = as_csv(runs).splitlines()
    assert rows[0] == "run,method,images,epoch,surrogate,aurc,eaurc"
    assert rows[1] == "softmax,softmax,7,30,softmax,0.03,0.019999999999999997"
    assert len(rows) == 1 + 2 * 6
