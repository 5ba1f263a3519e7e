"""The review page as text: complete, offline, and safe whatever files are called."""

import base64
import io
import json
import re
from dataclasses import asdict, replace

import numpy as np
import PIL.Image
import pytest

from segconf.errors import DataError
from segconf.overlays.layers import Contour, Scale, Step
from segconf.results.prediction_folder import PredictionFolder, RunRecord, select_rows
from segconf.results.rows import OUT_OF_DISTRIBUTION, CaseRow
from segconf.review.page import assemble, review_page
from segconf.review.page_maps import page_map, script_safe
from segconf.review.pictures import case_scale, write_thumbnail

SCALE = Scale((Step(2, 0.5), Step(4, 0.75), Step(10, 0.9), Step(100, 0.99)), 4, 10)
RECORD = RunRecord(
    {
        "id": "0123456789abcdef",
        "model": {"file": "/run/best.safetensors", "sha256": "ff"},
        "confidence": {"scale": {k: v for k, v in asdict(SCALE).items() if k != "contours"}},
        "images": "/images",
        "options": {"style": "contour"},
        "reading": {"channels": 3, "max_pixels": 10, "window": None},
    }
)
HOSTILE = "<img src=x onerror=alert(1)>"


def page_data(page):
    text = re.search(r"window\.segconfData = (.*?);</script>", page, re.DOTALL).group(1)
    return json.loads(text)


def test_the_table_is_in_the_page_and_nan_is_null():
    row = CaseRow("a/b", "a/b.jpg", 10, 20, expected_dice=0.12345678, flags=("x",))
    found = page_data(review_page([row], RECORD))
    assert found["run"]["id"] == "0123456789abcdef"
    assert found["run"]["notice"] == "research use, not a medical device"
    assert found["cases"][0]["case"] == "a/b"
    assert found["cases"][0]["expected_dice"] == 0.123457
    assert found["cases"][0]["border_confidence"] is None
    assert len(found["run"]["ramp"]) == 256


def test_the_page_knows_the_steps_of_the_scale_and_their_levels():
    run = page_data(review_page([], RECORD))["run"]
    assert run["measured"]
    assert [(step["times"], step["confidence"]) for step in run["steps"]] == [
        (2, 0.5), (4, 0.75), (10, 0.9), (100, 0.99)
    ]  # fmt: skip
    # 25.5 levels per unit of the log-odds 0, log 3, log 9 and log 99, rounded down.
    assert [step["level"] for step in run["steps"]] == [0, 28, 56, 117]
    assert run["shaded"] == 2


def test_a_folder_of_an_earlier_version_is_refused():
    values = RECORD.values | {"confidence": {"threshold": 0.7, "upper": 0.85, "classes": 2}}
    with pytest.raises(DataError, match=r"run\.json: written by an earlier version.*Predict again"):
        review_page([], RunRecord(values))


@pytest.mark.parametrize("name", [HOSTILE, "</script><script>alert(1)</script>", "<!--", "\u2028"])
def test_hostile_names_cannot_leave_their_string(name):
    page = review_page([CaseRow(name, f"{name}.png")], RECORD)
    assert name not in page
    assert page_data(page)["cases"][0]["case"] == name
    assert json.loads(script_safe(name)) == name
    clean = review_page([], RECORD)
    assert page.count("<script") == clean.count("<script")


def test_the_page_asks_nothing_of_the_network():
    page = review_page([CaseRow("a", "a.png")], RECORD)
    assert "http" not in page.replace("http-equiv", "").replace('"http://www.w3.org', "")
    assert "default-src 'none'" in page
    assert "research use, not a medical device" in page


def map_content(script):
    return json.loads("[" + script.removeprefix("segconfMap(").removesuffix(");\n") + "]")


def test_the_map_of_a_case_is_a_script_with_confidence_and_mask():
    mask = np.array([[0, 2], [1, 0]], np.uint8)
    confidence = np.array([[0.5, 0.75], [1.0, 0.6]])
    levels = np.rint(confidence * 65535).astype(np.uint16)

    script = page_map(HOSTILE, (mask, levels), SCALE)

    assert "<" not in script
    name, content = map_content(script)
    assert name == HOSTILE
    with PIL.Image.open(io.BytesIO(base64.b64decode(content["confidence"]))) as picture:
        pixels = np.asarray(picture)
    # Log-odds 0, 1.0986, many and 0.4055 of 10, in 255 levels; 0.75 is stored as 49151 of 65535.
    assert pixels.tolist() == [[0, 28], [255, 10]]
    assert content["mask"] == {"size": [2, 2], "runs": [1, 0, 1, 2, 1, 1, 1, 0]}
    assert content["contours"] == []


def test_the_map_has_the_pixels_inside_of_the_lines():
    # Probabilities of the foreground: 0.9, 0.6, 0.3 (background, sure of it at 0.7), 0.05.
    mask = np.array([[1, 1, 0, 0]], np.uint8)
    levels = np.rint(np.array([[0.9, 0.6, 0.7, 0.95]]) * 65535).astype(np.uint16)
    lines = (Contour("outer", 1, 0.1, 0.29), Contour("outer", 1, 0.05, 0.2))
    scale = replace(SCALE, contours=(*lines, Contour("inner", 1, 0.05, 0.8)))
    outer, inner = map_content(page_map("a", (mask, levels), scale))[1]["contours"]
    assert outer == {"kind": "outer", "class": 1, "alpha": 0.05, "runs": [3, 1, 1, 0]}
    assert inner == {"kind": "inner", "class": 1, "alpha": 0.05, "runs": [1, 1, 3, 0]}

    three = replace(scale, classes=3)  # the maps do not tell the probabilities of three classes
    assert map_content(page_map("a", (mask, levels), three))[1]["contours"] == []
    regions = np.array([[3, 1, 1, 0]], np.uint8)  # bit 0 is the outer line, bit 1 the inner one
    found = map_content(page_map("a", (mask, levels), three, regions))[1]["contours"]
    assert [one["runs"] for one in found] == [[3, 1, 1, 0], [1, 1, 3, 0]]


@pytest.mark.parametrize("flag", [OUT_OF_DISTRIBUTION, f"note: {OUT_OF_DISTRIBUTION}"])
def test_nothing_is_promised_for_an_out_of_distribution_image(flag):
    scale = replace(SCALE, contours=(Contour("outer", 1, 0.05, 0.2),))
    assert case_scale(scale, CaseRow("a", "a.png", flags=(flag,))).contours == ()
    assert case_scale(scale, CaseRow("a", "a.png", flags=("note: hair",))) == scale


def test_assembling_takes_every_row_there_is(tmp_path):
    folder = PredictionFolder(tmp_path)
    folder.write_record(RECORD)
    for case in ("b", "a/c"):
        path = folder.row(case)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(CaseRow(case, f"{case}.png", error="broken" * (case == "b")).to_json())

    assert assemble(folder) == 2
    lines = folder.table_file.read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["case", "a/c", "b"]
    assert [row["case"] for row in page_data(folder.page_file.read_text())["cases"]] == ["a/c", "b"]
    assert [row.case for row in select_rows(folder, [])] == ["a/c"]
    with pytest.raises(DataError, match="no predicted case called b, z"):
        select_rows(folder, ["b", "z", "a/c"])


def test_a_folder_that_is_none_says_so(tmp_path):
    with pytest.raises(DataError, match="not a prediction folder"):
        PredictionFolder(tmp_path).record()


@pytest.mark.parametrize(
    ("aspect", "size"), [(1.0, (168, 84)), (3.0, (112, 168)), (0.25, (168, 21))]
)
def test_thumbnails_have_the_shape_of_their_pixels(tmp_path, aspect, size):
    """A picture of 400 rows and 800 columns; a pixel is `aspect` times as high as it is wide."""
    mask, levels = np.zeros((400, 800), np.uint8), np.zeros((400, 800), np.uint16)
    shown = np.zeros((400, 800, 3), np.uint8)
    write_thumbnail(tmp_path / "a.jpg", shown, (mask, levels), SCALE, aspect)
    with PIL.Image.open(tmp_path / "a.jpg") as picture:
        assert picture.size == size
