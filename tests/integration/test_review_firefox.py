"""The review page in Firefox: drawing with mouse and touch, storage, and what comes out."""

import json

import numpy as np
import pytest

from segconf.images.masks import read_mask
from segconf.images.run_length import decode_runs
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.results.prediction_folder import PredictionFolder
from tests.tiny_models import brightness_model, disc, write_picture

pytest.importorskip("selenium", reason="selenium is not installed")
pytest.importorskip("websocket", reason="websocket-client is not installed")
from tests.browsers import near
from tests.firefox import FIREFOX, firefox

pytestmark = pytest.mark.skipif(not FIREFOX, reason="firefox is not installed")

EXPORT = """
new Promise((resolve) => {
  URL.createObjectURL = (blob) => { resolve(blob.text()); return '#'; };
  document.getElementById('export-json').click();
})
"""
SHEET = "JSON.stringify(document.getElementById('sheet').getBoundingClientRect())"
ID = "document.getElementById"


def test_firefox_draws_keeps_and_exports(tmp_path):
    write_picture(tmp_path / "images/one.png", disc(90, 120))
    model = brightness_model(tmp_path, size=(96, 128))
    predict(model, find_images([tmp_path / "images"]), tmp_path / "maps")
    folder = PredictionFolder(tmp_path / "maps")
    (tmp_path / "profile").mkdir()
    with firefox(tmp_path / "profile") as page:
        page.open(folder.page_file.as_uri())
        page.wait_for(f"{ID}('share').textContent !== ''")
        page.press("d")
        page.wait_for(f"{ID}('tool-brush').getAttribute('aria-pressed') === 'true'")
        size = int(page.run(f"{ID}('size-value').textContent"))
        box = json.loads(page.run(SHEET))
        corner = np.array([box["x"], box["y"]])
        scale = np.array([box["width"] / 120, box["height"] / 90])
        expected = read_mask(folder.mask("one", ".png")).astype(bool)
        for kind, points in {"mouse": [(90, 15), (100, 20)], "touch": [(20, 70), (30, 75)]}.items():
            screen = np.rint(corner + np.array(points) * scale)
            page.drag(*[(int(x), int(y)) for x, y in screen], kind=kind)
            start, end = (screen - corner) / scale
            expected |= near(start, end, size / 2)
        assert page.run(f"{ID}('progress').textContent").startswith("1 of 1 decided")

        page.ask("browsingContext.reload", context=page.tab, wait="complete")
        page.wait_for(f"{ID}('share').textContent !== ''")
        page.wait_for(f"!{ID}('undo').disabled")
        document = json.loads(page.run(EXPORT))
        [entry] = document["decisions"]
        assert entry["decision"] == "corrected"
        mask = decode_runs(entry["mask"]["runs"], tuple(entry["mask"]["size"]))
        np.testing.assert_array_equal(mask, expected)
        page.press("z", "z")
        page.wait_for(f"{ID}('progress').textContent.startsWith('0 of 1')")
