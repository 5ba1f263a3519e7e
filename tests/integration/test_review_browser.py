"""The review page in a real browser, opened from a file as a clinician would."""

import csv
import io
import json
import shutil
import time

import numpy as np
import PIL.Image
import pytest

from segconf.images.io import read_confidence
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.overlays.overlay import sampled
from segconf.results.prediction_folder import PredictionFolder
from segconf.results.rows import CaseRow
from segconf.review.page import assemble
from tests.tiny_models import brightness_model, disc, write_picture

selenium = pytest.importorskip("selenium", reason="selenium is not installed")
from selenium import webdriver  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium is not installed")

HOSTILE = "<img src=x onerror=alert(1)>"
QUIET = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
CONTRASTS = """
const linear = (x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) =>
  0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const ground = (element) => {
  for (; element; element = element.parentElement) {
    const colour = parse(getComputedStyle(element).backgroundColor);
    if (colour.length < 4 || colour[3] > 0) return colour;
  }
  return [255, 255, 255];
};
const hasText = (element) =>
  [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
return [...document.querySelectorAll("body *")]
  .filter((element) => element.offsetParent && !element.disabled && hasText(element))
  .map((element) => {
    const one = light(parse(getComputedStyle(element).color)), other = light(ground(element));
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    return [ratio, `${element.tagName} ${element.className} ${element.textContent}`];
  });
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("review")
    images = root / "images"
    for number in range(4):
        pixels = disc(90, 120 + number, seed=number)
        pixels[:, : 20 * number] = 122  # near the average: unsure
        write_picture(images / f"case {number} ü#%.png", pixels)
    write_picture(images / f"{HOSTILE}.png", disc(60, 60))
    (images / "broken.png").write_text("no picture")
    predict(brightness_model(root, size=(64, 64)), find_images([images]), root / "maps")
    return PredictionFolder(root / "maps")


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(tmp_path_factory, downloads):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*QUIET, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    behaviour = {"behavior": "allow", "downloadPath": str(downloads)}
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
    yield driver
    driver.quit()


@pytest.fixture
def page(browser, folder):
    """The page of the folder, opened afresh without decisions."""
    browser.get(folder.page_file.as_uri())
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    wait_for_map(browser)
    return browser


def wait_for(browser, condition):
    return WebDriverWait(browser, 20).until(condition)


def text(browser, element_id):
    return browser.execute_script(
        "return document.getElementById(arguments[0]).textContent", element_id
    )


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def open_case(browser, name):
    script = (
        "[...document.querySelectorAll('#list button')]"
        ".find(b => b.querySelector('.name').textContent === arguments[0]).click()"
    )
    browser.execute_script(script, name)
    wait_for(browser, lambda b: text(b, "name") == name)


def wait_for_map(browser):
    wait_for(
        browser,
        lambda b: (
            "of the image below" in text(b, "share")
            or b.execute_script("return !document.getElementById('message').hidden")
        ),
    )


def move(browser, slider, value):
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input', {bubbles: true}))",
        slider,
        value,
    )


def layer_pixels(browser):
    """RGBA of the confidence layer, (h, w, 4)."""
    script = (
        "const c = document.getElementById('heatmap'), [w, h] = [c.width, c.height];"
        "return [w, h, [...c.getContext('2d').getImageData(0, 0, w, h).data]]"
    )
    width, height, values = browser.execute_script(script)
    return np.array(values, np.uint8).reshape(height, width, 4)


def queue(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('#list .name')].map(e => e.textContent)"
    )


def downloaded(folder, suffix):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found := [path for path in folder.iterdir() if path.suffix == suffix]:
            content = found[0].read_text(encoding="utf-8")
            found[0].unlink()
            return content
        time.sleep(0.05)
    raise AssertionError(f"no {suffix} file was downloaded")


def test_the_worst_case_comes_first_and_names_are_text(page, folder):
    rows = [row for row in folder.rows() if not row.error]
    ordered = [
        row.case for row in sorted(rows, key=lambda row: (round(row.expected_dice, 4), row.case))
    ]
    assert queue(page) == ["broken", *ordered]
    assert HOSTILE in queue(page)
    open_case(page, HOSTILE)
    wait_for_map(page)
    assert page.execute_script("return document.querySelectorAll('#list img[onerror]').length") == 0
    assert page.execute_script("return document.getElementById('image').naturalWidth") > 0
    open_case(page, "broken")
    assert "not a JPEG, PNG, BMP or TIFF" in text(page, "message")
    assert [entry for entry in page.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_nothing_is_asked_of_the_network(page):
    page.get_log("performance")
    page.refresh()
    wait_for_map(page)
    open_case(page, "case 1 ü#%")
    wait_for_map(page)
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    asked = [
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    ]
    assert any(address.endswith(".js") for address in asked)
    assert {address.split(":")[0] for address in asked} <= {"file", "data"}


def step_level(confidence):
    """Level of the page: 25.5 for each unit of the log-odds, rounded down."""
    return np.floor(25.5 * np.log(confidence / (1 - confidence)) + 1e-3)


@pytest.mark.parametrize(("step", "times"), [(1, 4), (2, 10), (5, 100)])
def test_the_slider_shades_by_steps_of_the_error_rate(page, folder, step, times):
    case = "case 3 ü#%"
    open_case(page, case)
    wait_for_map(page)

    move(page, "threshold", step)

    shown = layer_pixels(page)
    confidence = sampled(read_confidence(folder.confidence(case, ".png")), shown.shape[:2])
    levels = step_level(np.clip(confidence, 0.5, 1 - 1e-9))
    # Not calibrated: wrong 1 time in 10 is a confidence of 0.9. The step before is striped.
    before = {4: 2, 10: 4, 100: 50}[times]
    low, some = (levels < step_level(1 - 1 / one) for one in (before, times))
    yellow = (shown[..., 3] > 0) & (shown[..., 0] > shown[..., 2])
    blue = (shown[..., 3] > 0) & (shown[..., 0] < shown[..., 2])
    assert some.any()
    np.testing.assert_array_equal(yellow, low)
    np.testing.assert_array_equal(blue, some & ~low)
    share = float(text(page, "share").split("%")[0])
    assert share == pytest.approx(100 * some.mean(), abs=0.51)
    percent = f"{100 - 100 / times:.0f}%"
    assert text(page, "threshold-value") == percent
    assert f"below {percent}" in text(page, "middle-words")


def test_measured_error_rates_are_said_in_words(browser, folder):
    html = folder.page_file.read_text(encoding="utf-8")
    measured = folder.page_file.with_name("measured.html")
    measured.write_text(html.replace('"measured": false', '"measured": true'), encoding="utf-8")
    browser.get(measured.as_uri())
    open_case(browser, "case 0 ü#%")
    wait_for_map(browser)
    assert text(browser, "threshold-value") == "1 in 10"
    assert text(browser, "low-words") == "wrong more than 1 time in 4"
    assert text(browser, "middle-words") == "wrong more than 1 time in 10"
    move(browser, "threshold", 4)
    assert text(browser, "threshold-value") == "1 in 50"


def test_opacity_and_layers(page):
    open_case(page, "case 1 ü#%")
    wait_for_map(page)
    move(page, "opacity", 35)
    style = "return getComputedStyle(document.getElementById(arguments[0]))[arguments[1]]"
    assert page.execute_script(style, "heatmap", "opacity") == "0.35"
    assert page.execute_script(style, "outline", "visibility") == "visible"
    press(page, "c")
    assert page.execute_script(style, "outline", "visibility") == "hidden"
    press(page, "c", Keys.SPACE)
    assert page.execute_script(style, "outline", "visibility") == "hidden"
    assert page.execute_script(style, "heatmap", "visibility") == "hidden"
    press(page, Keys.SPACE)
    assert page.execute_script(style, "heatmap", "visibility") == "visible"
    press(page, "h")
    assert (layer_pixels(page)[..., 3] == 255).all()


def test_zoom_and_pan(page):
    open_case(page, "case 1 ü#%")
    box = "return document.getElementById('sheet').getBoundingClientRect().toJSON()"
    before = page.execute_script(box)
    press(page, "+")
    after = page.execute_script(box)
    assert after["width"] == pytest.approx(1.4 * before["width"])
    centre = before["x"] + before["width"] / 2
    assert after["x"] + after["width"] / 2 == pytest.approx(centre)
    stage = page.find_element(By.ID, "stage")
    actions = webdriver.ActionChains(page).move_to_element(stage).click_and_hold()
    actions.move_by_offset(40, 25).release().perform()
    moved = page.execute_script(box)
    assert (moved["x"] - after["x"], moved["y"] - after["y"]) == pytest.approx((40, 25))
    press(page, "0")
    assert page.execute_script(box) == pytest.approx(before)


def test_decide_with_keys_reload_and_export(page, folder, downloads):
    names = queue(page)
    assert text(page, "name") == names[0]
    press(page, Keys.ARROW_RIGHT)
    assert text(page, "name") == names[1]
    press(page, "a")  # decides and goes on
    assert text(page, "name") == names[2]
    press(page, "n")
    page.switch_to.active_element.send_keys('hair, "ruler"')
    press(page, Keys.ESCAPE)
    press(page, "e", "r", Keys.ARROW_LEFT, "r")  # the last takes the rejection back
    assert text(page, "name") == names[3]
    press(page, Keys.ARROW_RIGHT, "r")

    page.refresh()
    wait_for(page, lambda b: text(b, "progress") == "3 of 6 decided \u00b7 6 shown")
    page.find_element(By.ID, "export-json").click()
    exported = json.loads(downloaded(downloads, ".json"))
    assert exported["run"] == folder.record().id
    assert exported["notice"] == "research use, not a medical device"
    found = {row["case"]: (row["decision"], row["note"]) for row in exported["decisions"]}
    expected = {
        names[1]: ("accept", ""),
        names[2]: ("edit", 'hair, "ruler"'),
        names[4]: ("reject", ""),
    }
    assert found == expected

    page.find_element(By.ID, "export-csv").click()
    table = list(csv.DictReader(io.StringIO(downloaded(downloads, ".csv"))))
    assert {row["case"]: (row["decision"], row["note"]) for row in table} == expected
    assert [row["case"] for row in table] == sorted(expected)


def test_search_filter_and_order(page):
    page.find_element(By.ID, "search").send_keys("CASE 2")
    assert queue(page) == ["case 2 ü#%"]
    page.find_element(By.ID, "search").clear()
    page.execute_script(
        "const o = document.getElementById('order'); o.value = 'case';"
        "o.dispatchEvent(new Event('change'))"
    )
    assert queue(page) == sorted(queue(page))
    open_case(page, "broken")
    press(page, "r")
    page.execute_script(
        "const f = document.getElementById('filter'); f.value = 'is:reject';"
        "f.dispatchEvent(new Event('change'))"
    )
    assert queue(page) == ["broken"]


def test_contrast_is_at_least_double_a(page):
    for ratio, what in page.execute_script(CONTRASTS):
        assert ratio >= 4.5, what


def test_everything_is_reached_with_the_tab_key(page):
    reached = set()
    for _ in range(40):
        press(page, Keys.TAB)
        reached.add(page.execute_script("return document.activeElement.id"))
    wanted = {"search", "order", "filter", "layer", "opacity", "threshold", "stage", "note"}
    assert wanted | {"next", "export-csv", "export-json"} <= reached
    before = text(page, "name")
    page.execute_script("document.getElementById('threshold').focus()")
    press(page, Keys.ARROW_RIGHT)
    assert text(page, "threshold-value") == "71%"  # the slider moves, not the queue
    assert text(page, "name") == before


def test_a_screenshot_to_look_at(page, tmp_path):
    open_case(page, "case 2 ü#%")
    wait_for_map(page)
    assert page.save_screenshot(str(tmp_path / "review.png"))
    with PIL.Image.open(tmp_path / "review.png") as picture:
        assert picture.size == (1280, 800)
    for width in (768, 1024, 1280):  # nothing sticks out at the side, tablets included
        size = {"width": width, "height": 1024, "deviceScaleFactor": 1, "mobile": False}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
    size = {"width": 1280, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def test_five_hundred_cases_open_quickly(browser, folder, tmp_path):
    many = PredictionFolder(tmp_path / "maps")
    shutil.copytree(folder.path, many.path)
    for number in range(500):
        case = f"copy {number:03d}"
        row = CaseRow(case, f"{case}.png", 90, 120, expected_dice=number / 500, flags=("x",))
        many.row(case).write_text(row.to_json(), encoding="utf-8")
        shutil.copy(folder.thumbnail("case 0 ü#%"), many.thumbnail(case))
        shutil.copy(folder.shown_image("case 0 ü#%"), many.shown_image(case))
    assemble(many)
    assert many.page_file.stat().st_size < 1_000_000

    browser.get(many.page_file.as_uri())
    ready = browser.execute_script(
        "return performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
    )
    assert len(queue(browser)) == 506
    assert ready < 2000
    before = text(browser, "name")
    press(browser, Keys.ARROW_RIGHT)
    assert text(browser, "name") != before
    loaded = (
        "return [...document.querySelectorAll('#list img')]"
        ".filter(i => i.complete && i.naturalWidth).length"
    )
    assert browser.execute_script(loaded) < 200  # thumbnails are loaded when they come into sight
