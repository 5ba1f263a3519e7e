"""Numbers of the paper against each other: E-AURC follows from AURC and accuracy."""

import math

import pytest

from segconf.comparison.published import PUBLISHED, PUBLISHED_METRICS, published_set

ROUNDING = 0.0005


def test_accuracy_explains_what_lies_between_aurc_and_e_aurc():
    """The optimum is ``r + (1 - r) ln(1 - r)`` at the error rate r, which is known to 3 digits."""
    checked = 0
    for one in PUBLISHED:
        if one.task == "segmentation":
            continue  # mIoU does not tell the accuracy of the pixels
        for rows in one.rows.values():
            for method, (accuracy, aurc, eaurc, *_) in rows.items():
                low, high = (
                    1000 * (1 - right + right * math.log(right))
                    for right in (accuracy + ROUNDING, accuracy - ROUNDING)
                )
                assert low - 1 <= aurc - eaurc <= high + 1, (one.name, method)
                checked += 1
    assert checked == 2 * 4 * 6 + 9


def test_every_row_has_every_metric_in_its_scale():
    for one in PUBLISHED:
        for rows in one.rows.values():
            for cells in rows.values():
                values = dict(zip(PUBLISHED_METRICS[one.task], cells, strict=True))
                quality = values.get("miou", values.get("accuracy"))
                assert 0 < quality < 1
                assert values["eaurc"] < values["aurc"]
                assert 1 < values["nll"] < 60
                assert 8 < values["brier"] < 110


@pytest.mark.parametrize(
    ("task", "classes", "name"),
    [
        ("segmentation", 0, "ISIC 2017"),
        ("classification", 2, "cancer survival"),
        ("classification", 10, "CIFAR-10"),
        ("classification", 100, "CIFAR-100"),
        ("classification", 3, None),
    ],
)
def test_the_data_set_of_the_paper_for_a_task(task, classes, name):
    found = published_set(task, classes)
    assert (None if found is None else found.name) == name
