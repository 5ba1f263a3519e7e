"""The review page in Chromium: the browser, and what tests do with the page."""

import base64
import json
import shutil
import time
from contextlib import contextmanager

import numpy as np
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
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
"""Contrast of every text that is seen, and the text."""


@contextmanager
def chromium(profile, downloads):
    """Chromium with a profile and a folder for downloads, 1280 x 800."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in (*QUIET, f"--user-data-dir={profile}"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    try:
        set_size(driver, 1280, 800)
        behaviour = {"behavior": "allow", "downloadPath": str(downloads)}
        driver.execute_cdp_cmd("Browser.setDownloadBehavior", behaviour)
        yield driver
    finally:
        driver.quit()


def set_size(browser, width, height):
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)


def set_colours(browser, scheme):
    """`dark` or `light`, as the system asks for."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def open_afresh(browser, address):
    """A page without anything that was done in it before."""
    browser.get("about:blank")
    storage = {"origin": "file://", "storageTypes": "indexeddb,local_storage"}
    browser.execute_cdp_cmd("Storage.clearDataForOrigin", storage)
    browser.get(address)


def open_page(browser, address):
    """The page of masks, opened afresh, when its first map is drawn."""
    open_afresh(browser, address)
    wait_for_map(browser)


def wait_for(browser, condition):
    return WebDriverWait(browser, 20, poll_frequency=0.05).until(condition)


def text(browser, element_id):
    return browser.execute_script(
        "return document.getElementById(arguments[0]).textContent", element_id
    )


def press(browser, *keys):
    for key in keys:
        browser.switch_to.active_element.send_keys(key)


def click(browser, element_id):
    browser.execute_script("document.getElementById(arguments[0]).click()", element_id)


def open_case(browser, name):
    script = (
        "const found = [...document.querySelectorAll('#list button')]"
        ".find(b => b.querySelector('.name').textContent === arguments[0]);"
        "if (found) found.click(); return Boolean(found)"
    )
    wait_for(browser, lambda b: b.execute_script(script, name))
    wait_for(browser, lambda b: text(b, "name") == name)


def wait_for_map(browser):
    script = (
        "return document.getElementById('share').textContent !== ''"
        " || !document.getElementById('message').hidden"
    )
    wait_for(browser, lambda b: b.execute_script(script))


def move(browser, slider, value):
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input', {bubbles: true}))",
        slider,
        value,
    )


def pixels_of(browser, canvas):
    """RGBA of a canvas, (h, w, 4)."""
    script = (
        "const c = document.getElementById(arguments[0]), [w, h] = [c.width, c.height];"
        "const bytes = c.getContext('2d').getImageData(0, 0, w, h).data; let text = '';"
        "for (let i = 0; i < bytes.length; i += 8192)"
        " text += String.fromCharCode(...bytes.subarray(i, i + 8192));"
        "return [w, h, btoa(text)]"
    )
    width, height, content = browser.execute_script(script, canvas)
    return np.frombuffer(base64.b64decode(content), np.uint8).reshape(height, width, 4)


def queue(browser):
    return browser.execute_script(
        "return [...document.querySelectorAll('#list .name')].map(e => e.textContent)"
    )


def downloaded(folder, suffix):
    """Text of the file that was downloaded; its name is there, empty, before it has ended."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        files = list(folder.iterdir())
        found = [path for path in files if path.suffix == suffix and path.stat().st_size]
        if found and not any(path.suffix == ".crdownload" for path in files):
            content = found[0].read_text(encoding="utf-8")
            found[0].unlink()
            return content
        time.sleep(0.05)
    raise AssertionError(f"no {suffix} file was downloaded")


def exported(browser, downloads):
    """The file of corrections that the page exports, and its entries by case."""
    click(browser, "export-json")
    document = json.loads(downloaded(downloads, ".json"))
    return document, {entry["case"]: entry for entry in document["decisions"]}


def near(start, end, radius, shape=(90, 120)):
    """Pixels whose centre is at most a radius away from a line between two points."""
    rows, columns = np.mgrid[: shape[0], : shape[1]] + 0.5
    along = end - start
    length = max(float(along @ along), 1e-12)
    part = ((columns - start[0]) * along[0] + (rows - start[1]) * along[1]) / length
    part = part.clip(0, 1)
    distance = np.hypot(columns - start[0] - part * along[0], rows - start[1] - part * along[1])
    assert not (abs(distance - radius) < 1e-9).any()  # nothing hangs on rounding
    return distance < radius
