"""The page of a model in real browsers: it predicts what `predict` does, and keeps it."""

import base64
import io
import json
import re
from contextlib import contextmanager

import numpy as np
import PIL.Image
import pytest

from segconf.data.decisions import read_decision_rows
from segconf.images.io import read_confidence
from segconf.images.masks import read_mask
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import NUMBERS
from segconf.review.page_archive import import_archive
from tests.model_pages import (
    REASON,
    RUNTIME,
    ChromiumTab,
    export_zip,
    names_of,
    start_page,
    write_page,
)
from tests.tiny_models import disc, write_picture

pytest.importorskip("selenium", reason="selenium is not installed")
pytest.importorskip("websocket", reason="websocket-client is not installed")
from tests.browsers import CHROMIUM, DRIVER, chromium
from tests.firefox import FIREFOX, firefox

pytestmark = pytest.mark.skipif(not RUNTIME.is_file(), reason=REASON)
BROWSERS = [
    pytest.param(
        "chromium",
        marks=pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium is not installed"),
    ),
    pytest.param(
        "firefox", marks=pytest.mark.skipif(not FIREFOX, reason="firefox is not installed")
    ),
]
CHROMIUM_ONLY = BROWSERS[:1]
TURNED = 6  # EXIF: the camera was turned to the right
BLOCK = 'id="block-model">'
LARGE = 2000
CHOOSE = """
[...document.querySelectorAll('#list button')]
  .find((one) => one.querySelector('.name').textContent === 'colours').click()
"""


@contextmanager
def browser(kind, folder):
    (folder / "profile").mkdir(exist_ok=True)
    if kind == "firefox":
        with firefox(folder / "profile") as tab:
            yield tab
    else:
        (folder / "downloads").mkdir(exist_ok=True)
        with chromium(folder / "profile", folder / "downloads") as driver:
            yield ChromiumTab(driver)


@pytest.fixture(scope="module")
def packaged(tmp_path_factory):
    """A run, its page, and what `predict` says about some pictures of every kind."""
    root = tmp_path_factory.mktemp("model_page")
    run, page = write_page(root)
    images = root / "images"
    write_picture(images / "colours.png", disc(90, 120))
    write_picture(images / "grey.png", disc(140, 70, seed=1)[..., 0])
    write_picture(images / "tiny.bmp", disc(20, 40, seed=2))
    write_picture(images / "plate.tif", disc(75, 75, seed=3), compression="tiff_lzw")
    exif = PIL.Image.Exif()
    exif[274] = TURNED
    write_picture(images / "turned.jpg", disc(160, 200, seed=4), quality=95, exif=exif)
    whole = (images / "turned.jpg").read_bytes()
    (images / "broken.jpg").write_bytes(whole[: len(whole) // 2])
    predict(load_model(run, device="cpu"), images, root / "maps")
    return page, images, PredictionFolder(root / "maps")


def compare_rows(expected, found):
    assert found.flags == expected.flags
    for name in NUMBERS:
        assert getattr(found, name) == pytest.approx(
            getattr(expected, name), rel=0.01, abs=5e-3, nan_ok=True
        ), name
    for name in ("height", "width", "image_sha256", "file", "group", "severity"):
        assert getattr(found, name) == getattr(expected, name), name


@pytest.mark.parametrize("kind", BROWSERS)
def test_the_page_predicts_what_predict_does_and_forgets_nothing(tmp_path, packaged, kind):
    page, images, reference = packaged
    with browser(kind, tmp_path) as tab:
        start_page(tab, page)
        tab.give_files("files", sorted(images.iterdir()))
        tab.wait_for("document.querySelectorAll('#list .name').length === 6")
        tab.wait_for("document.getElementById('work').hidden")
        tab.run(CHOOSE)
        tab.wait_for("document.getElementById('share').textContent !== ''")
        tab.press("a")
        tab.wait_for("document.getElementById('progress').textContent.startsWith('1 of 6')")
        tab.reload()
        tab.wait_for("document.body.dataset.ready")
        assert names_of(tab) == ["broken", "colours", "grey", "plate", "tiny", "turned"]
        assert tab.run("document.getElementById('progress').textContent").startswith("1 of 6")
        archive = export_zip(tab, tmp_path / "segconf.zip")
        if kind == "chromium":
            asked = requests_of(tab.driver)
            assert asked
            kinds = {address.partition(":")[0] for address in asked}
            assert kinds <= {"file", "blob", "data", "chrome"}  # the last is its own first tab

    folder = PredictionFolder(tmp_path / "maps")
    report = import_archive(folder, archive)
    assert len(report.cases) == 1
    assert read_decision_rows(folder.path / "decisions.csv")[0].decision == "accept"
    expected = {row.case: row for row in reference.rows()}
    found = {row.case: row for row in folder.rows()}
    assert "broken or incomplete" in found.pop("broken").error
    assert expected.pop("broken").error
    assert found.keys() == expected.keys()
    for name, row in found.items():
        compare_rows(expected[name], row)
        masks = [read_mask(one.mask(name, ".png"), classes=3) for one in (reference, folder)]
        assert (masks[0] == masks[1]).mean() >= 0.995, name
        maps = [read_confidence(one.confidence(name, ".png")) for one in (reference, folder)]
        assert (np.abs(maps[0] - maps[1]) <= 0.01).mean() >= 0.999, name


def requests_of(driver):
    """Addresses that the page asked for."""
    entries = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [
        entry["params"]["request"]["url"]
        for entry in entries
        if entry["method"] == "Network.requestWillBeSent"
    ]


@pytest.mark.parametrize("kind", CHROMIUM_ONLY)
def test_nothing_leaves_the_page_even_when_a_script_tries(tmp_path, packaged, kind):
    with browser(kind, tmp_path) as tab:
        start_page(tab, packaged[0])
        tried = tab.run("fetch('http://127.0.0.1:9/').then(() => 'sent', (e) => e.message)")
        assert tried == "Failed to fetch"
        image = (
            "new Promise((done) => { const i = new Image();"
            " document.addEventListener('securitypolicyviolation',"
            " (e) => done(e.effectiveDirective));"
            " i.src = 'http://127.0.0.1:9/a.png'; })"
        )
        assert tab.run(image) == "img-src"


@pytest.mark.parametrize("kind", BROWSERS)
def test_a_page_that_was_altered_or_cut_off_refuses_to_run(tmp_path, packaged, kind):
    text = packaged[0].read_text(encoding="utf-8")
    place = text.index(BLOCK) + len(BLOCK) + 1000
    letter = "A" if text[place] != "A" else "B"
    files = {
        "model": text[:place] + letter + text[place + 1 :],
        "script": text.replace("const KEPT_MAPS = 12", "const KEPT_MAPS = 13"),
        "cut": text[: text.rindex("<script>") + 500],
    }  # fmt: skip
    assert files["script"] != text
    with browser(kind, tmp_path) as tab:
        for name, content in files.items():
            path = tmp_path / f"{name}.html"
            path.write_text(content, encoding="utf-8")
            tab.open(path.as_uri())
            if name == "model":
                tab.wait_for("!document.getElementById('refusal').hidden")
                assert "damaged or was altered (model)" in tab.run(
                    "document.getElementById('refusal').textContent"
                )
                assert tab.run("document.getElementById('add-files').disabled")
            else:
                words = tab.run("document.getElementById('guard').textContent")
                assert "damaged or incomplete" in words
            assert not tab.run("Boolean(document.body.dataset.ready)")


@pytest.mark.parametrize("kind", CHROMIUM_ONLY)
def test_an_old_browser_is_told_so(tmp_path, packaged, kind):
    with browser(kind, tmp_path) as tab:
        source = "delete window.DecompressionStream"
        tab.driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": source})
        tab.open(packaged[0].as_uri())
        words = tab.run("document.getElementById('guard').textContent")
        assert re.search(r"too old .*DecompressionStream.*Firefox 115", words)
        assert not tab.run("Boolean(document.body.dataset.ready)")


DROP = """
(() => {
  const transfer = new DataTransfer();
  for (let i = 0; i < %d; i += 1) {
    const bytes = Uint8Array.from(atob('%s'), (letter) => letter.charCodeAt(0));
    transfer.items.add(new File([bytes], `image${i}.png`));
  }
  transfer.items.add(new File(['hello'], 'notes.txt'));
  document.dispatchEvent(new DragEvent('drop', { dataTransfer: transfer, cancelable: true }));
})()
"""


@pytest.mark.parametrize("kind", CHROMIUM_ONLY)
def test_files_can_be_dropped_the_queue_cancelled_and_everything_cleared(tmp_path, packaged, kind):
    buffer = io.BytesIO()
    PIL.Image.fromarray(disc(60, 80)).save(buffer, "png")
    with browser(kind, tmp_path) as tab:
        start_page(tab, packaged[0])
        tab.run(DROP % (LARGE, base64.b64encode(buffer.getvalue()).decode()))
        tab.wait_for("document.querySelectorAll('#list .name').length >= 2")
        assert f"of {LARGE + 1}" in tab.run("document.getElementById('work-words').textContent")
        tab.run("document.getElementById('cancel').click()")
        tab.wait_for("document.getElementById('work').hidden")
        names = names_of(tab)
        assert 2 <= len(names) < LARGE
        tab.run("(() => { window.confirm = () => true; })()")
        tab.run("document.getElementById('clear').click()")
        tab.wait_for("document.querySelectorAll('#list .name').length === 0")
        tab.wait_for("document.body.dataset.ready")
        assert names_of(tab) == []
        assert "Drop images" in tab.run("document.getElementById('message').textContent")
        tab.give_files("files", [packaged[1] / "colours.png", packaged[1] / "broken.jpg"])
        tab.wait_for("document.querySelectorAll('#list .name').length === 2")
        tab.give_files("files", [packaged[1] / "colours.png"])
        tab.wait_for("document.querySelectorAll('#list .name').length === 3")
        assert names_of(tab) == ["broken", "colours", "colours.png"]
