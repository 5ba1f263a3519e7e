"""The review page from its own server: what is done lands in the folder, tabs see each other."""

import csv
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from segconf.images.masks import read_mask
from segconf.inference.predict import predict
from segconf.inference.sources import find_images
from segconf.results.prediction_folder import PredictionFolder
from tests.tiny_models import brightness_model, disc, write_picture

pytest.importorskip("selenium", reason="selenium is not installed")
from tests.browsers import (
    CHROMIUM,
    DRIVER,
    click,
    open_case,
    press,
    text,
    wait_for,
    wait_for_map,
)

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    for number in range(3):
        write_picture(root / "images" / f"sub/case {number}.png", disc(60, 80, seed=number))
    predict(brightness_model(root, size=(64, 64)), find_images([root / "images"]), root / "maps")
    return PredictionFolder(root / "maps")


@pytest.fixture(scope="module")
def address(folder):
    """The page of `segconf review --serve`."""
    command = [sys.executable, "-m", "segconf_cli", "review", str(folder.path), "--serve"]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [*command, "--no-browser"], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            lines = [process.stdout.readline().strip() for _ in range(2)]
            assert lines[1].startswith("http://127.0.0.1:")
            yield lines[1]
        finally:
            process.terminate()


def decisions(folder):
    with (folder.path / "decisions.csv").open(encoding="utf-8", newline="") as file:
        return {row["case"]: row["decision"] for row in csv.DictReader(file)}


def saved(browser):
    wait_for(browser, lambda b: text(b, "saved") == "Saved in the folder")


def draw(browser, case, dx=0):
    """A dab of the brush at the centre of a case, moved a little."""
    open_case(browser, case)
    click(browser, "tool-brush")
    wait_for(browser, lambda b: "Brush" in text(b, "announce"))
    stage = browser.find_element("id", "stage")
    stage.send_keys("\ue012" * dx)  # the left arrow
    stage.send_keys("\ue007")  # Enter, first of all shows the cursor
    stage.send_keys("\ue007")
    click(browser, "tool-pan")


def test_what_is_done_lands_in_the_folder_and_tabs_notice_each_other(browser, address, folder):
    browser.get(address)
    wait_for_map(browser)
    open_case(browser, "sub/case 0")
    press(browser, "a")
    saved(browser)
    assert decisions(folder) == {"sub/case 0": "accept"}

    draw(browser, "sub/case 1", dx=6)
    saved(browser)
    assert decisions(folder)["sub/case 1"] == "corrected"
    mask = read_mask(folder.path / "corrected/sub/case 1.png")
    predicted = read_mask(folder.mask("sub/case 1", ".png"))
    assert (mask.shape, bool((mask != predicted).any())) == ((60, 80), True)

    # A second tab sees what the first one has done, and changes the case.
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    browser.get(address)
    wait_for_map(browser)
    assert text(browser, "progress").startswith("2 of 3 decided")
    open_case(browser, "sub/case 1")
    wait_for(
        browser, lambda b: not b.execute_script("return document.getElementById('undo').disabled")
    )
    press(browser, "z")  # back to the prediction
    saved(browser)
    wait_for(browser, lambda _: "sub/case 1" not in decisions(folder))
    assert not (folder.path / "corrected/sub/case 1.png").exists()

    # The first tab is told, and nothing is overwritten before it has chosen.
    second = browser.current_window_handle
    browser.switch_to.window(first)
    open_case(browser, "sub/case 1")
    press(browser, "r")
    wait_for(browser, lambda b: "was changed elsewhere" in text(b, "saved"))
    assert "sub/case 1" not in decisions(folder)
    click(browser, "keep-mine")
    saved(browser)
    assert decisions(folder)["sub/case 1"] == "reject"
    np.testing.assert_array_equal(read_mask(folder.path / "corrected/sub/case 1.png"), mask)

    browser.switch_to.window(second)
    open_case(browser, "sub/case 1")
    press(browser, "e")
    wait_for(browser, lambda b: "was changed elsewhere" in text(b, "saved"))
    click(browser, "take-theirs")
    wait_for(browser, lambda b: "reject" in b.page_source and text(b, "saved") == "")
    open_case(browser, "sub/case 1")
    shown = "return document.querySelector('[data-decision=reject]').getAttribute('aria-pressed')"
    wait_for(browser, lambda b: b.execute_script(shown) == "true")
    assert decisions(folder)["sub/case 1"] == "reject"
    browser.close()
    browser.switch_to.window(first)


REFUSING = """
const ask = window.fetch, body = '{"message": "the disk is full"}';
const refused = (status) => Promise.resolve(new Response(body, { status }));
window.asked = [];
window.refuse = { "case%201": 400, "case%202": 409 };
window.fetch = (address, options) => {
  if (options?.method !== "PUT") return ask(address, options);
  const name = address.split("%2F")[1], force = options.headers["If-Match"] === "*";
  asked.push([name, force]);
  if (force && asked.filter((one) => one[1]).length < 2) return refused(400);
  return !force && refuse[name] ? refused(refuse[name]) : ask(address, options);
};
"""
"""The server takes one case not at all, is asked to overwrite another, and fails at that once."""


def test_a_case_that_is_not_saved_stays_in_sight_until_it_is(browser, address, folder):
    browser.get(address)
    wait_for_map(browser)
    browser.execute_script(REFUSING)
    for number, words in ((1, "Not saved: the disk is full"), (2, "sub/case 2 was changed")):
        open_case(browser, f"sub/case {number}")
        press(browser, "e")
        wait_for(browser, lambda b, words=words: words in text(b, "saved"))
    open_case(browser, "sub/case 0")
    press(browser, "r")
    wait_for(browser, lambda _: decisions(folder).get("sub/case 0") == "reject")
    both = "2 cases are not saved. sub/case 2 was changed"
    wait_for(browser, lambda b: text(b, "saved").startswith(both))
    marked = "return [...document.querySelectorAll('.unsaved .name')].map((e) => e.textContent)"
    assert sorted(browser.execute_script(marked)) == ["sub/case 1", "sub/case 2"]

    click(browser, "keep-mine")
    wait_for(browser, lambda _: decisions(folder).get("sub/case 2") == "edit")
    forced = [force for name, force in browser.execute_script("return asked") if "202" in name]
    assert forced == [False, True, True]
    wait_for(browser, lambda b: text(b, "saved") == "Not saved: the disk is full")
    browser.execute_script("refuse = {}")
    saved(browser)
    assert decisions(folder)["sub/case 1"] == "edit"
    assert browser.execute_script(marked) == []


def test_the_page_asks_nobody_else(browser, address):
    browser.get_log("performance")
    browser.get(address)
    wait_for_map(browser)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = {
        event["params"]["request"]["url"]
        for event in events
        if event["method"] == "Network.requestWillBeSent"
    }
    start = address.removesuffix("review.html")
    assert any(one.startswith(start) for one in asked)
    assert all(one.startswith((start, "data:")) for one in asked)
