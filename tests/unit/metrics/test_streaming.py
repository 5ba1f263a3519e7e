import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_curve

from segconf.metrics import ranking_histogram as ranking_module
from segconf.metrics.streaming import ConfidenceMetrics
from tests.references import metrics as reference

NAMES = ["miou", "accuracy", "aurc", "eaurc", "augrc", "fpr95", "aupr_error", "ece", "nll", "brier"]
RANKING = ["aurc", "eaurc", "augrc", "fpr95", "aupr_error"]
few = settings(max_examples=25, deadline=None, derandomize=True)  # the same examples every time
POSITIVE = st.floats(2**-20, 30, width=32)  # a margin of zero is decided for class 0


def counted(logits, labels, **options):
    metrics = ConfidenceMetrics(num_classes=logits.shape[1], **options)
    metrics.update(logits, labels)
    return metrics


def random_pixels(seed, pixels, classes=2, scale=2.0):
    """(1, K, N) logits of which about 80% agree with the (1, N) labels."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(1, classes, pixels, generator=generator) * scale
    noise = torch.randint(classes, (1, pixels), generator=generator)
    flipped = torch.rand(1, pixels, generator=generator) < 0.25
    return logits, torch.where(flipped, noise, logits.argmax(1))


def binary_logits(log_odds, correct):
    """(1, 2, N) logits with these log-odds and labels 1 where they are right, else 0."""
    margin = torch.as_tensor(log_odds, dtype=torch.float32)
    logits = torch.stack([torch.zeros_like(margin), margin])[None]
    return logits, torch.as_tensor(correct).long()[None]


def assert_close(actual, expected, tolerance=1e-7):
    for name in NAMES:
        assert actual[name] == pytest.approx(expected[name], abs=tolerance, nan_ok=True), name


def test_four_pixels_worked_by_hand():
    # Confidence 0.9, 0.8, 0.7, 0.6 for class 1; right, wrong, right, right.
    p = torch.tensor([0.9, 0.8, 0.7, 0.6], dtype=torch.float64)
    metrics = ConfidenceMetrics()
    metrics.update_probabilities(torch.stack([1 - p, p])[None], torch.tensor([[1, 0, 1, 1]]))
    result = metrics.compute()

    assert metrics.pixels == 4
    assert metrics.confusion.tolist() == [[0, 1], [0, 3]]
    assert result["accuracy"] == 0.75
    assert result["miou"] == pytest.approx((0 / 1 + 3 / 4) / 2)
    risks = [0, 1 / 2, 1 / 3, 1 / 4]
    assert result["aurc"] == pytest.approx(sum(risks) / 4)
    assert result["eaurc"] == pytest.approx((sum(risks) - 1 / 4) / 4)
    # Errors/4 over coverage: trapezoids of 0, 0, 1/4, 1/4, 1/4.
    assert result["augrc"] == pytest.approx((0 + 1 / 8 + 1 / 4 + 1 / 4) / 4)
    assert result["fpr95"] == 1.0  # TPR 1 is nearest 0.95, the wrong pixel is accepted by then
    assert result["aupr_error"] == pytest.approx(1 / 3)
    gaps = [abs(1 - 0.9), abs(0 - 0.8), abs(1 - 0.7), abs(1 - 0.6)]  # four different bins
    assert result["ece"] == pytest.approx(sum(gaps) / 4)
    nll = -(math.log(0.9) + math.log(0.2) + math.log(0.7) + math.log(0.6)) / 4
    assert result["nll"] == pytest.approx(nll, abs=1e-8)
    assert result["brier"] == pytest.approx(2 * (0.01 + 0.64 + 0.09 + 0.16) / 4)


def test_confidence_on_an_edge_belongs_to_the_bin_below():
    # 0.6 = 9/15 is in (8/15, 9/15], 0.61 in the next bin: |1 - 0.6| + |0 - 0.61|, not |1 - 1.21|.
    p = np.array([0.6, 0.61])
    metrics = ConfidenceMetrics()
    metrics.update_probabilities(np.stack([1 - p, p])[None], np.array([[1, 0]]))
    assert metrics.compute()["ece"] == pytest.approx((0.4 + 0.61) / 2)
    # The same for logits: log 4 is the edge 12/15 as well as float32 can say it.
    edge = np.float32(math.log(4))
    above = np.nextafter(edge, np.float32(9))
    curve = counted(*binary_logits([edge, above], [True, True])).reliability()
    assert curve.count[11:13].tolist() == [1, 1]


@pytest.mark.parametrize("classes", [2, 3, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equals_the_pixel_loop(classes, dtype):
    logits, labels = random_pixels(classes, 300, classes)
    logits = logits.to(dtype)
    logits[..., :40] = logits[..., 40:80]  # ties
    expected = reference.evaluate(logits[0].double().T.tolist(), labels[0].tolist())
    assert_close(counted(logits, labels).compute(), expected)
    probabilities = ConfidenceMetrics(classes)
    probabilities.update_probabilities(logits.double().softmax(1), labels)
    assert_close(probabilities.compute(), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_counts_the_rounded_logits(dtype):
    logits, labels = random_pixels(3, 200)
    rounded = logits.to(dtype)
    expected = reference.evaluate(rounded[0].double().T.tolist(), labels[0].tolist())
    assert_close(counted(rounded, labels).compute(), expected)


def test_sklearn_agrees_on_a_hundred_thousand_pixels():
    logits, labels = random_pixels(0, 100_000)
    result = counted(logits, labels).compute()
    margin = (logits[0, 1].double() - logits[0, 0].double()).numpy()
    correct = (margin > 0) == labels[0].bool().numpy()
    fpr, tpr, _ = roc_curve(correct, np.abs(margin), drop_intermediate=False)
    assert result["fpr95"] == pytest.approx(fpr[np.argmin(np.abs(tpr - 0.95))], abs=5e-6)
    expected = average_precision_score(~correct, -np.abs(margin))
    assert result["aupr_error"] == pytest.approx(expected, abs=5e-6)


def test_bins_stay_within_the_promised_distance_of_the_exact_ranks(monkeypatch):
    logits, labels = random_pixels(1, 400_000, scale=8.0)
    exact = counted(logits, labels).compute()
    exact_paper = counted(logits, labels).compute("paper")
    counts = counted(logits, labels).reliability().count.tolist()
    monkeypatch.setattr(ranking_module, "EXACT_PIXELS", 1000)
    binned = counted(logits, labels)
    assert binned.compute()["aurc"] == pytest.approx(exact["aurc"], abs=1e-8)
    assert binned.compute()["aurc"] != exact["aurc"]  # really another way
    assert binned.compute()["aupr_error"] == pytest.approx(exact["aupr_error"], abs=5e-6)
    # A bin on the border of two float32 confidences goes to one of them: a few of 400,000 pixels.
    assert binned.compute("paper")["aurc"] == pytest.approx(exact_paper["aurc"], abs=1e-6)
    # One pixel of 80,000 is 1.2e-5.
    assert binned.compute()["fpr95"] == pytest.approx(exact["fpr95"], abs=4e-5)
    for name in ("ece", "nll", "brier"):
        assert binned.compute()[name] == pytest.approx(exact[name], rel=1e-8), name
    for name in ("miou", "accuracy"):
        assert binned.compute()[name] == exact[name]
    assert binned.reliability().count.tolist() == counts


def test_bins_do_not_assume_that_values_are_spread_evenly(monkeypatch):
    # Half precision leaves the last bits zero: all values at the lower end of their bin.
    logits, labels = random_pixels(7, 20_000)
    logits[..., :10_000] = logits[..., :10_000].half().float()
    logits[0, :, :4] = torch.tensor([[0.0, 5e3, 0.0, math.ldexp(1, 120)], [2e3, 0.0, 5e3, 0.0]])
    labels[0, :4] = torch.tensor([0, 0, 1, 0])  # wrong beyond the last bin, right beyond it
    exact = counted(logits, labels).compute()
    monkeypatch.setattr(ranking_module, "EXACT_PIXELS", 1000)
    binned = counted(logits, labels).compute()
    for name in ("ece", "nll", "brier"):
        assert binned[name] == pytest.approx(exact[name], rel=2e-8), name


@pytest.mark.parametrize("exact_pixels", [0, 100])
@pytest.mark.parametrize("classes", [2, 4])
def test_neighbours_of_an_edge_are_told_apart(monkeypatch, classes, exact_pixels):
    monkeypatch.setattr(ranking_module, "EXACT_PIXELS", exact_pixels)
    for k in (9, 12, 14):
        # Confidence k/15 against K - 1 equal other classes, a millionth below and above it.
        log_odds = torch.tensor([1 - 1e-6, 1 + 1e-6], dtype=torch.float64) * math.log(k / (15 - k))
        logits = torch.zeros(1, classes, 2, dtype=torch.float64)
        logits[0, 1] = log_odds + math.log(classes - 1)
        curve = counted(logits, torch.tensor([[1, 0]])).reliability()
        assert curve.count[k - 1 : k + 1].tolist() == [1, 1]
        assert curve.accuracy[k - 1 : k + 1].tolist() == [1, 0]


def test_paper_protocol_ties_saturated_confidences_and_uses_the_closed_form():
    # Both confidences are 1.0 in float32. By log-odds the wrong pixel comes first.
    metrics = counted(*binary_logits([30.0, 20.0], [False, True]))
    strict, paper = metrics.compute(), metrics.compute("paper")
    assert strict["aurc"] == pytest.approx((1 + 1 / 2) / 2)
    assert paper["aurc"] == pytest.approx(1 / 2)
    assert strict["eaurc"] == pytest.approx(0.75 - (0 + 1 / 2) / 2)
    assert paper["eaurc"] == pytest.approx(0.5 - (0.5 + 0.5 * math.log(0.5)))
    with pytest.raises(ValueError, match="protocol"):
        metrics.compute("loose")


@pytest.mark.parametrize("correct", [[True], [False], [True, False, True, False, False]])
def test_ties_share_the_mean_over_all_orders(correct):
    result = counted(*binary_logits([1.5] * len(correct), correct)).compute()
    assert result["aurc"] == pytest.approx(reference.mean_aurc_over_all_orders(correct))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_logits_are_decided_for_the_first_class(dtype):
    logits = torch.tensor([[0.0, 0.0], [-0.0, 0.0], [0.0, -0.0], [3.0, 3.0]], dtype=dtype)
    assert counted(logits, torch.zeros(4, dtype=torch.long)).confusion.tolist() == [[4, 0], [0, 0]]


def test_degenerate_sets_have_declared_answers():
    logits, _ = random_pixels(5, 50)
    right = counted(logits, logits.argmax(1)).compute()
    assert [right[name] for name in ("miou", "accuracy", "aurc", "eaurc", "augrc")] == [
        1,
        1,
        0,
        0,
        0,
    ]
    assert math.isnan(right["fpr95"])
    assert math.isnan(right["aupr_error"])
    wrong = counted(logits, 1 - logits.argmax(1)).compute()
    assert [wrong[name] for name in ("miou", "accuracy", "aurc", "aupr_error")] == [0, 0, 1, 1]
    assert wrong["eaurc"] == pytest.approx(0, abs=1e-15)
    assert wrong["augrc"] == pytest.approx(0.5)
    assert math.isnan(wrong["fpr95"])
    empty = ConfidenceMetrics(3)
    for protocol in ("strict", "paper"):
        assert all(math.isnan(value) for value in empty.compute(protocol).values())
    assert list(empty.compute()) == NAMES
    # Class 2 occurs nowhere: the mean is over the other two.
    three = torch.tensor([[2.0, 0.0, -9.0], [0.0, 2.0, -9.0]])[..., None]
    assert counted(three, torch.tensor([[0], [1]])).compute()["miou"] == 1.0


def test_zero_probability_of_the_truth_is_infinite_nll_and_ranks_last_to_be_refused():
    metrics = ConfidenceMetrics()
    p = np.array([1.0, 0.75])
    metrics.update_probabilities(np.stack([1 - p, p])[None], np.array([[0, 1]]))
    result = metrics.compute()
    assert result["nll"] == math.inf
    assert result["aurc"] == pytest.approx((1 + 1 / 2) / 2)
    assert result["brier"] == pytest.approx((2 + 2 * 0.0625) / 2)


@pytest.mark.parametrize("size", [1e5, 1e12, 1e38])
def test_huge_logits_are_exact(size):
    logits = torch.tensor([[size, -size], [-size, size]]).T[None]
    result = counted(logits, torch.tensor([[0, 0]])).compute()
    assert result["nll"] == pytest.approx(float(logits[0, 0, 0].double()), rel=1e-12)
    assert result["brier"] == 1.0
    assert result["aurc"] == pytest.approx((0.5 + 0.5) / 2)


@pytest.mark.parametrize("shape", [(4, 2, 6, 10), (4, 2, 2, 5, 6), (240, 2)])
def test_batch_shape_does_not_matter(shape):
    logits, labels = random_pixels(9, 240)
    expected = counted(logits, labels).compute()
    spread = logits[0].T.reshape(shape[0], *shape[2:], 2).movedim(-1, 1)
    truth = labels.reshape(shape[0], *shape[2:])
    assert counted(spread, truth).compute() == expected
    assert counted(spread.contiguous(), truth.to(torch.uint8)).compute() == expected
    readonly = spread.numpy().copy()
    readonly.flags.writeable = False
    assert counted(readonly, truth.numpy().astype(np.uint16)).compute() == expected
    assert counted(readonly.astype(">f4"), truth.numpy()).compute() == expected


def test_ignored_pixels_are_not_looked_at():
    logits, labels = random_pixels(2, 100)
    expected = counted(logits, labels)
    more = torch.cat([logits, torch.full((1, 2, 7), math.nan)], dim=2)
    truth = torch.cat([labels, torch.full((1, 7), 255)], dim=1)
    metrics = counted(more, truth)
    assert metrics.pixels == 100
    assert metrics.compute() == expected.compute()
    assert counted(more, truth.where(truth < 2, -1), ignore_index=-1).compute() == metrics.compute()
    assert counted(more[..., 100:], truth[..., 100:]).pixels == 0


def bad_inputs():
    good = torch.zeros(2, 2, 3, 3), torch.zeros(2, 3, 3, dtype=torch.long)
    yield "classes", (torch.zeros(2, 3, 3, 3), good[1]), r"\(B, 2, ...\)"
    yield "space", (good[0], torch.zeros(2, 3, 4, dtype=torch.long)), "expected"
    yield "channel of labels", (good[0], good[1][:, None]), "expected"
    yield "no batch", (torch.zeros(2), torch.zeros((), dtype=torch.long)), "expected"
    yield "integer logits", (good[0].long(), good[1]), "floating"
    yield "float labels", (good[0], good[1].float()), "integers"
    yield "label too large", (good[0], good[1] + 2), "from 2 to 2"
    yield "label negative", (good[0], good[1] - 1), "from -1 to -1"
    yield "nan", (good[0] * math.nan, good[1]), "NaN"
    yield "inf", (good[0] - math.inf, good[1]), "infinity"


@pytest.mark.parametrize(("arrays", "message"), [c[1:] for c in bad_inputs()])
def test_bad_logits_are_refused(arrays, message):
    with pytest.raises(ValueError, match=message):
        ConfidenceMetrics().update(*arrays)


@pytest.mark.parametrize("values", [(0.5, 0.6), (-0.1, 1.1), (math.nan, 0.5), (2.0, -1.0)])
def test_bad_probabilities_are_refused(values):
    with pytest.raises(ValueError, match="probabilities"):
        ConfidenceMetrics().update_probabilities(torch.tensor([values]), torch.tensor([0]))


def test_a_refused_batch_leaves_no_trace():
    logits, labels = random_pixels(4, 400_000)
    metrics = counted(logits[..., :1000], labels[..., :1000])
    before = metrics.compute()
    logits[..., -1] = math.nan  # in the last of several pieces
    with pytest.raises(ValueError, match="NaN"):
        metrics.update(logits, labels)
    assert metrics.compute() == before


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="at least 2"):
        ConfidenceMetrics(num_classes=1)
    with pytest.raises(ValueError, match="is one of"):
        ConfidenceMetrics(num_classes=3, ignore_index=2)
    metrics = ConfidenceMetrics(3)
    with pytest.raises(ValueError, match="classes"):
        metrics.merge(ConfidenceMetrics(2))
    with pytest.raises(ValueError, match="ignore"):
        metrics.load_state_dict(ConfidenceMetrics(3, ignore_index=-1).state_dict())
    with pytest.raises(ValueError, match="themselves"):
        metrics.merge(metrics)


@few
@given(st.integers(0, 10_000), st.sampled_from([2, 4]), st.sampled_from([0, 100, 1 << 22]))
def test_any_order_and_any_split_give_the_same_bits(seed, classes, exact_pixels):
    logits, labels = random_pixels(seed, 333, classes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking_module, "EXACT_PIXELS", exact_pixels)
        whole = counted(logits, labels)
        order = torch.randperm(333, generator=torch.Generator().manual_seed(seed))
        mixed = ConfidenceMetrics(classes)
        for part in order.split(seed % 97 + 1):
            worker = counted(logits[..., part], labels[..., part])
            mixed.merge(worker)
        again = ConfidenceMetrics(classes)
        buffer = io.BytesIO()
        torch.save(mixed.state_dict(), buffer)
        buffer.seek(0)
        again.load_state_dict(torch.load(buffer, weights_only=True))
        for protocol in ("strict", "paper"):
            expected = whole.compute(protocol)
            assert mixed.compute(protocol) == pytest.approx(expected, abs=0, rel=0, nan_ok=True)
            assert again.compute(protocol) == pytest.approx(expected, abs=0, rel=0, nan_ok=True)
    assert again.confusion.tolist() == whole.confusion.tolist()


@few
@given(st.integers(0, 10_000), st.sampled_from([2.0**-6, 0.25, 2.0, 64.0]))
def test_temperature_moves_calibration_but_not_the_ranking_of_two_classes(seed, temperature):
    logits, labels = random_pixels(seed, 200)
    plain = counted(logits, labels).compute()
    scaled = counted(logits / temperature, labels).compute()
    for name in [*RANKING, "miou", "accuracy"]:
        assert scaled[name] == pytest.approx(plain[name], rel=1e-14, abs=1e-16), name
    assert scaled["ece"] != plain["ece"]
    probability = (logits.double() / temperature).softmax(dim=1)[0]  # (2, N)
    confidence, predicted = probability.max(dim=0)
    expected = reference.ece(confidence.tolist(), (predicted == labels[0]).tolist())
    assert scaled["ece"] == pytest.approx(expected, abs=1e-7)


@few
@given(st.lists(st.tuples(POSITIVE, st.booleans()), min_size=1, max_size=40))
def test_a_monotone_transform_leaves_the_ranking_alone(pixels):
    log_odds, correct = zip(*pixels, strict=True)
    plain = counted(*binary_logits(log_odds, correct)).compute()
    # Equal values stay equal, larger ones stay larger: replace each by its rank.
    levels = sorted(set(log_odds))
    ranks = [float(levels.index(value) + 1) for value in log_odds]
    changed = counted(*binary_logits(ranks, correct)).compute()
    for name in RANKING:
        assert changed[name] == pytest.approx(plain[name], abs=1e-14, nan_ok=True), name


@few
@given(st.integers(0, 100_000), st.integers(4, 14))
def test_theorem_1_bounds_the_difference_of_aurc(seed, size):
    # |AURC(c) - AURC(kappa)| <= L_cons / (m min D_c), with the loss over all pairs.
    generator = np.random.default_rng(seed)
    consistency = generator.permutation(size * 10)[:size] / (size * 10)
    confidence = generator.permutation(size * 10)[:size] / (size * 10)
    correct = generator.random(size) < 0.6
    gap = reference.smallest_gap(confidence, consistency, correct)
    areas = [
        counted(*binary_logits(values + 0.5, correct)).compute()["aurc"]
        for values in (consistency, confidence)
    ]
    difference = abs(areas[0] - areas[1])
    if gap is None:
        assert difference == pytest.approx(0, abs=1e-12)
    else:
        loss = reference.all_pairs_loss(confidence, consistency)
        assert difference <= loss / (size * gap) + 1e-12


def test_ten_billion_pixels_do_not_drift():
    metrics = counted(*random_pixels(6, 10_000))
    expected = metrics.compute()
    total = ConfidenceMetrics()
    total.merge(metrics)
    for _ in range(20):  # doubled twenty times: 10^10 pixels
        double = ConfidenceMetrics()
        double.load_state_dict(total.state_dict())
        total.merge(double)
    assert total.pixels == 10_000 * 2**20 > 10**10
    result = total.compute()
    for name in ("miou", "accuracy", "nll", "brier", "ece", "augrc", "fpr95", "aupr_error"):
        assert result[name] == pytest.approx(expected[name], rel=1e-4, abs=1e-12), name
    # Of 10,000 pixels in bins the mean is off by more than of millions, but it does not drift.
    for name in ("nll", "brier", "ece"):
        assert result[name] == pytest.approx(expected[name], rel=1e-7), name


def test_a_bin_holds_more_pixels_than_32_bits_can_count(monkeypatch):
    monkeypatch.setattr(ranking_module, "EXACT_PIXELS", 0)
    total = counted(*binary_logits([math.log(3)] * 4, [True, True, True, False]))
    for _ in range(31):
        double = ConfidenceMetrics()
        double.load_state_dict(total.state_dict())
        total.merge(double)
    assert total.pixels == 2**33
    assert total.reliability().count.sum() == 2**33
    result = total.compute()
    assert result["aurc"] == pytest.approx(0.25)
    assert result["ece"] == pytest.approx(0, abs=1e-7)  # 75% sure, 75% right
    assert result["nll"] == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25), rel=1e-7)
