"""Corrections in the review page: tools, undo, storage, and the file that comes out."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy import ndimage

from segconf.calibration.stored import StoredContour
from segconf.images.io import read_confidence, read_image
from segconf.images.masks import read_mask
from segconf.images.run_length import decode_runs
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.inference.predictors import SinglePass
from segconf.inference.sources import find_images
from segconf.results.maps import Maps, prepare_folders, write_row
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import OUT_OF_DISTRIBUTION, CaseRow
from segconf.review.page import assemble
from segconf.review.pictures import write_case, write_page_files
from segconf.review.store import ReviewStore
from tests.tiny_models import brightness_model, disc, write_checkpoint, write_picture

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver
from selenium.common.exceptions import WebDriverException
from selenium.webdriver.common.actions.wheel_input import ScrollOrigin
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.browsers import (
    CHROMIUM,
    DRIVER,
    click,
    exported,
    move,
    near,
    open_case,
    open_page,
    pixels_of,
    press,
    set_size,
    text,
    wait_for,
    wait_for_map,
)

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium is not installed")

OUTER, INNER = 0.3, 0.995
SHEET = "return document.getElementById('sheet').getBoundingClientRect().toJSON()"
INK = [0, 214, 150]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three small pictures: a disc, a disc in a haze, and a disc beside a doubtful strip."""
    root = tmp_path_factory.mktemp("editing")
    hazy = disc(90, 120, seed=1)
    hazy[20:70, 5:25] = 112  # a little below the average: background, but unsure
    strip = disc(90, 120, seed=2)
    strip[:, 100:] = 118
    for name, pixels in {"disc": disc(90, 120), "hazy": hazy, "strip": strip}.items():
        write_picture(root / "images" / f"{name}.png", pixels)
    model = brightness_model(root, size=(96, 128), temperature=0.4)
    contours = tuple(contour(*kind) for kind in (("outer", OUTER), ("inner", INNER)))
    model.calibration = model.calibration.model_copy(update={"contours": contours})
    predict(model, find_images([root / "images"]), root / "maps")
    found = PredictionFolder(root / "maps")
    make_strange(found, "strip", model.scale)
    return found


def make_strange(folder, case, scale):
    """Write a case again as if it were unlike the training images."""
    row = next(row for row in folder.rows() if row.case == case)
    mask, levels = folder.read_slice(row)
    image = read_image(folder.record().images / row.file)
    strange = replace(row, flags=(OUT_OF_DISTRIBUTION,))
    write_case(folder, strange, image, Maps(mask[None], levels[None]), scale=scale, style="contour")
    assemble(folder)


def contour(kind, threshold):
    return StoredContour(
        kind=kind, class_index=1, alpha=0.05, threshold=threshold, risk=0.04, groups=60, images=60
    )


@pytest.fixture
def page(browser, folder):
    open_page(browser, folder.page_file.as_uri())
    open_case(browser, "hazy")
    wait_for_map(browser)
    return browser


def predicted(folder, case="hazy"):
    return read_mask(folder.mask(case, ".png"))


def corrected(page, downloads, case="hazy"):
    mask = exported(page, downloads)[1][case]["mask"]
    return decode_runs(mask["runs"], tuple(mask["size"]))


def use(page, tool, size=None):
    click(page, f"tool-{tool}")
    wait_for(page, lambda b: b.execute_script(f"return {pressed(f'tool-{tool}')}") == "true")
    if size is not None:
        move(page, "brush-size", size)


def pressed(name):
    return f"document.getElementById('{name}').getAttribute('aria-pressed')"


def place(page, x, y, shape=(90, 120), box=None):
    """Whole position on the screen nearest to a point of the mask, and the point it stands for."""
    box = box or page.execute_script(SHEET)
    scale = np.array([box["width"] / shape[1], box["height"] / shape[0]])
    corner = np.array([box["x"], box["y"]])
    screen = np.rint(corner + np.array([x, y]) * scale)
    return SimpleNamespace(screen=[int(value) for value in screen], point=(screen - corner) / scale)


def drag(page, *points, button="left"):
    """Press at the first point of the mask, move along the others, release; returns the points."""
    box = page.execute_script(SHEET)
    places = [place(page, *point, box=box) for point in points]
    actions = webdriver.ActionChains(page, duration=20)
    pointer = actions.w3c_actions.pointer_action
    number = {"left": 0, "middle": 1, "right": 2}[button]
    pointer.move_to_location(*places[0].screen)
    pointer.pointer_down(button=number)
    for one in places[1:]:
        pointer.move_to_location(*one.screen)
    pointer.pointer_up(button=number)
    actions.perform()
    return [one.point for one in places]


def test_brush_and_eraser_change_the_pixels_under_them(page, folder, downloads):
    before = predicted(folder)
    use(page, "brush", 9)
    start, end = drag(page, (80, 20), (104, 32))
    added = before.astype(bool) | near(start, end, 4.5)
    use(page, "eraser", 14)
    start, end = drag(page, (60, 40), (62, 52))
    expected = added & ~near(start, end, 7)

    np.testing.assert_array_equal(corrected(page, downloads), expected)
    numbers = page.find_elements(By.CSS_SELECTOR, "#numbers dd")[-1]
    change = int(expected.sum()) - int(before.sum())
    percent = 100 * change / int(before.sum())
    assert numbers.text == f"{'+' if change > 0 else chr(8722)}{abs(percent):.1f}%"
    assert f"{abs(change):,} pixels" in numbers.get_attribute("title")
    mark = page.find_element(By.CSS_SELECTOR, "#list [aria-current] .mark")
    assert mark.get_attribute("aria-label") == "Corrected"
    assert page.find_element(By.ID, "corrected-key").is_displayed()
    # The corrected border is drawn in its own colour where the mask changes, and nowhere else.
    ink = (pixels_of(page, "ink")[..., :3] == INK).all(axis=-1)
    box, stage = (
        page.execute_script(SHEET),
        page.execute_script(
            "return document.getElementById('stage').getBoundingClientRect().toJSON()"
        ),
    )
    rows, columns = np.nonzero(ink)
    x = np.floor((columns + 0.5 + stage["x"] - box["x"]) * 120 / box["width"]).astype(int)
    y = np.floor((rows + 0.5 + stage["y"] - box["y"]) * 90 / box["height"]).astype(int)
    inside = np.pad(expected, 1, mode="edge")
    edge = ndimage.maximum_filter(inside, 3) != ndimage.minimum_filter(inside, 3)
    assert len(x) > 300
    assert edge[1:-1, 1:-1][y, x].all()


def test_undo_and_redo_have_no_limit(page, folder, downloads):
    use(page, "brush", 5)
    for number in range(12):
        drag(page, (30 + 4 * number, 80))
    after = corrected(page, downloads)
    assert (after != predicted(folder)).any()
    for _ in range(12):
        press(page, "z")
    assert page.execute_script("return document.getElementById('undo').disabled")
    assert exported(page, downloads)[1] == {}  # nothing is corrected any more
    assert text(page, "progress").startswith("0 of 3 decided")
    for _ in range(12):
        press(page, "y")
    np.testing.assert_array_equal(corrected(page, downloads), after)
    page.find_element(By.TAG_NAME, "body").send_keys(Keys.CONTROL + "z")
    drag(page, (100, 10))
    assert page.execute_script("return document.getElementById('redo').disabled")


def test_a_closed_outline_is_filled_and_an_open_one_is_not(page, downloads):
    use(page, "brush", 3)
    drag(page, (75, 10), (110, 10), (110, 40), (75, 40), (75, 10))
    outline = corrected(page, downloads).astype(bool)
    use(page, "fill")
    drag(page, (90, 80))
    assert "The outline is open" in text(page, "announce")
    drag(page, (90, 25))
    filled = corrected(page, downloads).astype(bool)
    np.testing.assert_array_equal(filled, ndimage.binary_fill_holes(outline))
    assert filled.sum() > outline.sum()

    # Drawn around, with a straight line from the end to the start: a triangle.
    points = drag(page, (5, 75), (25, 75), (25, 88))
    rows, columns = np.mgrid[:90, :120] + 0.5
    sides = [
        (b[0] - a[0]) * (rows - a[1]) - (b[1] - a[1]) * (columns - a[0])
        for a, b in zip(points, [*points[1:], points[0]], strict=True)
    ]
    triangle = np.all([side > 0 for side in sides], axis=0)
    np.testing.assert_array_equal(corrected(page, downloads), filled | triangle)


def test_a_click_flips_the_uncertain_region(page, folder, downloads):
    shaded = pixels_of(page, "heatmap")[..., 3] > 0
    before = predicted(folder)
    regions, _ = ndimage.label(shaded & (before == 0))
    region = regions == regions[45, 15]
    assert region[45, 15]
    assert region.sum() > 500
    use(page, "flip")
    drag(page, (15, 45))
    np.testing.assert_array_equal(corrected(page, downloads), before.astype(bool) | region)
    drag(page, (15, 45))  # and back
    np.testing.assert_array_equal(corrected(page, downloads), before)
    drag(page, (60, 45))
    assert "This place is certain" in text(page, "announce")


def test_grow_and_shrink_to_the_lines(page, folder, downloads):
    before = predicted(folder)
    confidence = read_confidence(folder.confidence("hazy", ".png"))
    probability = np.where(before == 1, confidence, 1 - confidence)
    press(page, "o")
    wait_for(page, lambda b: "Grow" in text(b, "announce"))
    outer = probability >= OUTER
    assert (outer != before).any()
    np.testing.assert_array_equal(corrected(page, downloads), outer)
    press(page, "i")
    wait_for(page, lambda b: "Shrink" in text(b, "announce"))
    inner = probability >= INNER
    assert (inner != before).any()
    np.testing.assert_array_equal(corrected(page, downloads), inner)


def test_the_lines_have_a_legend_and_a_key(page):
    shown = "return getComputedStyle(document.querySelector('#outline .outer.line')).display"
    assert text(page, "outer-words") == "the outer line misses at most 5% of a lesion, on average"
    assert "at most 5% inside the inner line" in text(page, "inner-words")
    assert "exchangeable" in text(page, "assumption")
    assert page.execute_script(shown) == "inline"
    assert (
        len(
            page.execute_script(
                "return document.querySelector('#outline .outer').getAttribute('d')"
            )
        )
        > 50
    )
    press(page, "g")
    assert page.execute_script(shown) == "none"
    assert page.find_element(By.ID, "outer-key").get_attribute("hidden")
    press(page, "g")
    open_case(page, "strip")  # out of distribution
    wait_for(page, lambda b: "nothing is promised" in text(b, "assumption"))
    for name in ("outer-key", "inner-key", "grow", "shrink"):
        assert page.find_element(By.ID, name).get_attribute("hidden")


def test_the_wheel_zooms_and_with_shift_changes_the_brush(page, folder, downloads):
    use(page, "brush", 10)
    before = page.execute_script(SHEET)
    origin = ScrollOrigin.from_element(page.find_element(By.ID, "stage"))
    webdriver.ActionChains(page).scroll_from_origin(origin, 0, -200).perform()
    zoomed = page.execute_script(SHEET)
    assert zoomed["width"] == pytest.approx(before["width"] * np.exp(0.5))
    press(page, "]", "]", "[")
    assert text(page, "size-value") == "12"  # 10, 11.5, 13.8, 12.2, each rounded
    page.execute_script(
        "document.getElementById('stage').dispatchEvent(new WheelEvent('wheel', "
        "{deltaY: 100, shiftKey: true, cancelable: true}))"
    )
    assert text(page, "size-value") == "10"
    drag(page, (60, 45), (64, 50), button="middle")  # moves the image, draws nothing
    moved = page.execute_script(SHEET)
    assert moved["x"] > zoomed["x"]
    assert exported(page, downloads)[1] == {}
    start, end = drag(page, (60, 20), (70, 24))
    expected = predicted(folder).astype(bool) | near(start, end, 5)
    np.testing.assert_array_equal(corrected(page, downloads), expected)


def touch(page, kind, *points):
    places = [place(page, *point).screen for point in points]
    marks = [{"x": x, "y": y, "id": number} for number, (x, y) in enumerate(places)]
    page.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": marks})


def test_one_finger_draws_and_two_move_the_image(page, folder, downloads):
    page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": True})
    use(page, "brush", 9)
    before = page.execute_script(SHEET)
    touch(page, "touchStart", (80, 20))
    touch(page, "touchMove", (90, 20))
    touch(page, "touchEnd")
    start, end = place(page, 80, 20).point, place(page, 90, 20).point
    expected = predicted(folder).astype(bool) | near(start, end, 4.5)
    np.testing.assert_array_equal(corrected(page, downloads), expected)
    touch(page, "touchStart", (40, 70))
    touch(page, "touchStart", (40, 70), (60, 70))
    touch(page, "touchMove", (40, 70), (70, 70))
    touch(page, "touchMove", (40, 70), (80, 70))
    touch(page, "touchEnd")
    assert page.execute_script(SHEET)["width"] > 1.3 * before["width"]
    np.testing.assert_array_equal(corrected(page, downloads), expected)  # what had begun is undone
    page.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def test_a_pen_draws_and_its_other_end_erases(page, folder, downloads):
    use(page, "brush", 9)
    script = """
    const [x, y, buttons] = arguments, stage = document.getElementById('stage');
    stage.setPointerCapture = () => {};
    for (const type of ['pointerdown', 'pointerup']) stage.dispatchEvent(new PointerEvent(type, {
      pointerId: 9, pointerType: 'pen', isPrimary: true, bubbles: true, clientX: x, clientY: y,
      button: buttons === 1 ? 0 : 5, buttons: type === 'pointerdown' ? buttons : 0 }));
    """
    here, there = place(page, 95, 20), place(page, 60, 45)
    page.execute_script(script, *here.screen, 1)
    page.execute_script(script, *there.screen, 32)
    expected = predicted(folder).astype(bool) | near(here.point, here.point, 4.5)
    expected &= ~near(there.point, there.point, 4.5)
    np.testing.assert_array_equal(corrected(page, downloads), expected)


def test_keys_alone_correct_a_mask(page, folder, downloads):
    page.find_element(By.ID, "stage").send_keys("d")
    wait_for(page, lambda b: b.execute_script(f"return {pressed('tool-brush')}") == "true")
    move(page, "brush-size", 12)
    stage = page.find_element(By.ID, "stage")
    assert stage.get_attribute("role") == "application"
    assert "arrow keys move the cursor" in stage.get_attribute("aria-label")
    stage.send_keys(*[Keys.ARROW_RIGHT] * 12, *[Keys.ARROW_UP] * 10, Keys.ENTER)
    # From the centre (60, 45) in steps of a quarter of the size: 12 * 3 to the right, 10 * 3 up.
    at = np.array([60 + 36, 45 - 30])
    expected = predicted(folder).astype(bool) | near(at, at + 1e-4, 6)
    np.testing.assert_array_equal(corrected(page, downloads), expected)
    assert text(page, "name") == "hazy"  # arrows moved the cursor, not the queue
    press(page, Keys.ESCAPE, Keys.ESCAPE)
    assert page.execute_script(f"return {pressed('tool-pan')}") == "true"


def test_a_killed_tab_loses_no_stroke(page, folder, downloads):
    address = page.current_url
    use(page, "brush", 7)
    first = drag(page, (90, 15), (100, 15))
    drag(page, (90, 75), (100, 75))
    press(page, "z")
    drag(page, (20, 10))
    expected = corrected(page, downloads)
    drag(page, (30, 10))  # nothing but the stroke itself happens before the end
    last = place(page, 30, 10).point
    tab = page.current_window_handle
    page.switch_to.new_window("tab")
    second = page.current_window_handle
    page.switch_to.window(tab)
    with pytest.raises(WebDriverException):
        page.execute_cdp_cmd("Page.crash", {})
    page.switch_to.window(second)
    set_size(page, 1280, 800)
    page.get(address)
    open_case(page, "hazy")
    wait_for(
        page, lambda b: not b.execute_script("return document.getElementById('undo').disabled")
    )
    again = corrected(page, downloads)
    np.testing.assert_array_equal(again, expected.astype(bool) | near(last, last + 1e-4, 3.5))
    press(page, "z", "z")  # what was undone before the end is not there
    np.testing.assert_array_equal(
        corrected(page, downloads), predicted(folder).astype(bool) | near(*first, 3.5)
    )


def test_a_second_tab_follows_the_first(page, downloads):
    use(page, "brush", 7)
    drag(page, (90, 15), (100, 15))
    expected = corrected(page, downloads)
    address, first = page.current_url, page.current_window_handle
    page.switch_to.new_window("tab")
    set_size(page, 1280, 800)
    page.get(address)
    open_case(page, "hazy")
    enabled = "return !document.getElementById('undo').disabled"
    wait_for(page, lambda b: b.execute_script(enabled))
    press(page, "z")
    second = page.current_window_handle
    page.switch_to.window(first)
    wait_for(page, lambda b: text(b, "progress").startswith("0 of 3 decided"))
    wait_for(page, lambda b: b.execute_script("return document.getElementById('undo').disabled"))
    wait_for(
        page, lambda b: not b.execute_script("return document.getElementById('redo').disabled")
    )
    press(page, "y")
    np.testing.assert_array_equal(corrected(page, downloads), expected)
    page.switch_to.window(second)
    wait_for(page, lambda b: text(b, "progress").startswith("1 of 3 decided"))
    page.close()
    page.switch_to.window(first)


def test_the_file_is_taken_by_the_folder_it_belongs_to(page, folder, downloads, tmp_path):
    use(page, "brush", 7)
    drag(page, (90, 15), (100, 15))
    press(page, "n")
    page.switch_to.active_element.send_keys("hair")
    press(page, Keys.ESCAPE)
    open_case(page, "disc")
    press(page, "r")
    document, entries = exported(page, downloads)
    assert document["format"] == "segconf corrections 1"
    assert document["model_sha256"] == folder.record().values["model"]["sha256"]
    assert {name: entry["decision"] for name, entry in entries.items()} == {
        "hazy": "corrected",
        "disc": "reject",
    }
    assert entries["hazy"]["note"] == "hair"
    path = tmp_path / "corrections.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    store = ReviewStore(folder)
    report = store.import_file(path)
    assert (set(report.cases), report.corrected) == ({"disc", "hazy"}, ("hazy",))
    written = read_mask(folder.path / "corrected" / "hazy.png")
    runs = entries["hazy"]["mask"]["runs"]
    np.testing.assert_array_equal(written, decode_runs(runs, (90, 120)))


def test_accepting_a_corrected_case_keeps_the_correction(page, downloads):
    use(page, "brush", 7)
    drag(page, (90, 15))
    press(page, "a")
    assert text(page, "name") != "hazy"
    assert exported(page, downloads)[1]["hazy"]["decision"] == "corrected"
    open_case(page, "hazy")
    press(page, "r")
    entry = exported(page, downloads)[1]["hazy"]
    assert entry["decision"] == "reject"
    assert entry["mask"]["size"] == [90, 120]  # nothing is thrown away


class ThreeTones(torch.nn.Module):
    """Dark, grey and bright pixels are the classes 0, 1 and 2."""

    def forward(self, images):
        grey = images.mean(dim=1, keepdim=True)  # (B, 1, h, w)
        return torch.cat([-4 * grey, 2 - grey.abs() * 4, 4 * grey], dim=1)


def test_number_keys_choose_among_several_classes(browser, downloads, tmp_path):
    pixels = disc(90, 120)
    pixels[5:35, 5:35] = 125
    write_picture(tmp_path / "images/one.png", pixels)
    weights = write_checkpoint(tmp_path / "best.safetensors", classes=3, size=(96, 128))
    model = load_model(weights, device="cpu")
    model.predictor = SinglePass(ThreeTones())
    predict(model, find_images([tmp_path / "images"]), tmp_path / "maps")
    folder = PredictionFolder(tmp_path / "maps")
    before = read_mask(folder.mask("one", ".png"), classes=3)
    assert set(np.unique(before)) == {0, 1, 2}
    open_page(browser, folder.page_file.as_uri())
    press(browser, "2")  # takes the brush as well
    wait_for(browser, lambda b: b.find_element(By.ID, "stage").get_attribute("role") != "img")
    move(browser, "brush-size", 9)
    start, end = drag(browser, (90, 10), (100, 12))
    press(browser, "1")
    expected = np.where(near(start, end, 4.5), 2, before)
    start, end = drag(browser, (57, 43), (63, 48))
    expected = np.where(near(start, end, 4.5), 1, expected)
    np.testing.assert_array_equal(corrected(browser, downloads, "one"), expected)
    press(browser, "3")  # there is no such class
    assert "Class 3" not in text(browser, "announce")


FRAMES = """
const done = arguments[0], stage = document.getElementById('stage');
const box = stage.getBoundingClientRect(), times = [];
stage.setPointerCapture = () => {};
const send = (type, i) => stage.dispatchEvent(new PointerEvent(type, {
  pointerId: 1, pointerType: 'mouse', isPrimary: true, bubbles: true, button: 0, buttons: 1,
  clientX: box.x + box.width * (0.5 + 0.3 * Math.cos(i / 12)),
  clientY: box.y + box.height * (0.5 + 0.35 * Math.sin(i / 9)) }));
send('pointerdown', 0);
const frame = (now) => {
  times.push(now);
  send(times.length > 60 ? 'pointerup' : 'pointermove', times.length);
  if (times.length > 60) done(60000 / (times.at(-1) - times[0]));
  else requestAnimationFrame(frame);
};
requestAnimationFrame(frame);
"""


def write_large(folder, record):
    """A page of one case of 4288 x 2848 pixels, whose confidence falls towards its border."""
    rows, columns = np.mgrid[:2848, :4288].astype(np.float32)
    distance = np.hypot(rows - 1424, 0.8 * (columns - 2144)) - 800
    levels = (65535 / (1 + np.exp(-abs(distance) / 60))).astype(np.uint16)
    mask = (distance < 0).astype(np.uint8)
    folder.path.mkdir()
    folder.write_record(record)
    row = CaseRow("large", "large.jpg", 2848, 4288)
    prepare_folders(folder, row)
    pixels = np.stack([(levels >> 8).astype(np.uint8)] * 3)
    write_page_files(folder, "large", pixels, (mask, levels), record.scale)
    write_row(folder, row)
    assemble(folder)
    return folder


def test_frames_per_second_while_drawing_on_a_large_image(browser, folder, tmp_path, capsys):
    """Printed, not asserted: it depends on the machine. Here, Chromium draws without a GPU."""
    large = write_large(PredictionFolder(tmp_path / "maps"), folder.record())
    open_page(browser, large.page_file.as_uri())
    use(browser, "brush", 200)
    whole = browser.execute_async_script(FRAMES)
    for _ in range(4):
        press(browser, "+")
    near_by = browser.execute_async_script(FRAMES)
    size = large.page_map("large").stat().st_size
    with capsys.disabled():
        print(  # noqa: T201 - the measurement is the purpose
            f"\n4288 x 2848: {whole:.0f} frames per second while drawing, {near_by:.0f} zoomed in; "
            f"the map of the case has {size} bytes"
        )
    assert text(browser, "progress").startswith("1 of 1 decided")
