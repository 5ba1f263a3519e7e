"""Prediction folders of made-up cases, for what happens after a prediction."""

import hashlib

from segconf.results.label_rows import LabelRow, label_table
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.results.run_record import RunRecord
from tests.unit.review.test_page import RECORD

MODEL = RECORD.values["model"]["sha256"]
NAMES = ("a/one", "two")


def _hashes(name):
    return tuple(hashlib.sha256(f"{what} {name}".encode()).hexdigest() for what in ("image", "map"))


HASHES = {name: _hashes(name) for name in NAMES}


def write_folder(path, names=NAMES):
    """A folder with rows of pictures of 2 x 3 pixels; pictures and maps hold their own name."""
    folder = PredictionFolder(path)
    path.mkdir()
    folder.write_record(RECORD)
    for name in names:
        image, mask = _hashes(name)
        row = CaseRow(name, f"{name}.png", 2, 3, image_sha256=image, mask_sha256=mask)
        file = folder.row(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(row.to_json(), encoding="utf-8")
        for shown in (folder.shown_image(name), folder.thumbnail(name), folder.page_map(name)):
            if shown.resolve().is_relative_to(path.resolve()):
                shown.parent.mkdir(parents=True, exist_ok=True)
                shown.write_text(f"{shown.parent.name} of {name}", encoding="utf-8")
    return folder


def entry(name, **changes):
    """What the page sends about a case."""
    image, mask = _hashes(name)
    values = {
        "case": name,
        "decision": "",
        "note": "",
        "decided_at": "2026-01-02T03:04:05.678Z",
        "image_sha256": image,
        "mask_sha256": mask,
    }
    return values | changes


CLASSES = ("benign", "malignant", "=1+1")
LABEL_RECORD = RunRecord(
    RECORD.values | {"model": {**RECORD.values["model"], "classes": list(CLASSES)}}
)


def write_label_folder(path, rows, record=LABEL_RECORD):
    """A folder of labels, without pictures."""
    folder = PredictionFolder(path)
    path.mkdir()
    folder.write_record(record)
    table = label_table(rows, record.class_names)
    folder.labels_file.write_text(table, encoding="utf-8")
    return folder


def label_row(name, label, *probabilities, **changes):
    """An image of 20 x 30 pixels."""
    image, _ = _hashes(name)
    values = {"height": 20, "width": 30, "image_sha256": image} | changes
    return LabelRow(name, f"{name}.png", name, label, probabilities, **values)


def label_entry(row, **changes):
    """What the page sends about an image with a label."""
    values = {
        "case": row.case,
        "decision": "",
        "note": "",
        "decided_at": "2026-01-02T03:04:05.678Z",
        "image_sha256": row.image_sha256,
        "predicted": row.label,
        "label": "",
    }
    return values | changes
