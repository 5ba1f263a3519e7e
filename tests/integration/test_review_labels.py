"""The review page of labels in a real browser, and a second training round with what it exports."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from segconf.config.loading import load_config
from segconf.inference.predict import predict
from segconf.results.label_rows import TABLE, LabelRow
from segconf.results.run_record import RunRecord
from segconf.review.page import assemble
from segconf.review.pictures import write_label_pictures
from segconf.runs.run_folder import RunFolder
from segconf.training.train import train
from tests.conftest import COLOURS, coloured
from tests.integration.test_label_commands import CHOSEN, SETTINGS
from tests.review_folders import LABEL_RECORD, write_label_folder

pytest.importorskip("selenium", reason="selenium is not installed")
from selenium.webdriver.common.keys import Keys

from tests.browsers import (
    CHROMIUM,
    CONTRASTS,
    DRIVER,
    click,
    downloaded,
    exported,
    open_afresh,
    open_case,
    press,
    queue,
    set_colours,
    set_size,
    text,
    wait_for,
)

pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium is not installed")

UNLABELED = 6


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Pictures of 8 x 8 pixels in three colours, the first 18 with a label, and a run on them."""
    root = tmp_path_factory.mktemp("labels")
    rows = []
    for number in range(18 + UNLABELED):
        name = COLOURS[number % 3]
        path = root / f"data/images/{number // 10}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(coloured([3, number], name)).save(path)
        rows.append(f"{number},{name if number < 18 else ''}")
    (root / "data/labels.csv").write_text("\n".join(["image,label", *rows]) + "\n")
    config = load_config(overrides=SETTINGS, flags={"training.epochs": 1})
    train(config, dataset=str(root / "data"), folder=root / "run")
    return root


def open_page(browser, folder):
    open_afresh(browser, (folder / "review.html").as_uri())
    wait_for(browser, lambda b: text(b, "position") != "")


def facts(browser, name):
    """What the queue says about an image, and its mark."""
    script = (
        "const item = [...document.querySelectorAll('#list button')]"
        ".find(b => b.querySelector('.name').textContent === arguments[0]);"
        "return ['.dice', '.mark'].map(part => item.querySelector(part).textContent)"
    )
    return browser.execute_script(script, name)


def shown_classes(browser):
    """Key, class, percentage and width of the bar of every class that is offered."""
    script = (
        "return [...document.querySelectorAll('#class-list button')].map(b =>"
        "[b.firstChild.textContent, b.querySelector('.class-name').textContent,"
        " b.querySelector('.share').textContent, b.querySelector('.bar i').style.width])"
    )
    return [tuple(one) for one in browser.execute_script(script)]


def percent(value):
    """As the page writes a probability."""
    return f"{100 * value:.0f}%" if value >= 0.0995 else f"{100 * value:.1f}%"


@pytest.fixture(scope="module")
def maps(data):
    """Predictions for the images without a label."""
    images = [data / f"data/images/{n // 10}/{n}.png" for n in range(18, 18 + UNLABELED)]
    predict(data / "run", images, data / "maps")
    return data / "maps"


@pytest.fixture
def rows(maps):
    """The rows of the table, by name, the least sure first."""
    found = {row["case"]: row for row in table(maps / TABLE)}
    least = sorted(found, key=lambda case: (round(float(found[case]["confidence"]), 6), case))
    return {case: found[case] for case in least}


def test_the_page_shows_what_the_table_has(browser, maps, rows):
    open_page(browser, maps)
    assert queue(browser) == list(rows)
    name, row = next(iter(rows.items()))
    assert text(browser, "name") == name
    shown = shown_classes(browser)
    assert [one[:2] for one in shown] == list(zip("123", COLOURS, strict=True))
    for _, label, words, width in shown:
        value = round(float(row[f"p_{label}"]), 6)
        assert (words, float(width.rstrip("%"))) == (percent(value), pytest.approx(100 * value))
    confidence = percent(round(float(row["confidence"]), 6))
    assert facts(browser, name) == [f"{row['label']} {confidence}", ""]
    crisp = "const i = document.getElementById('image'), b = i.getBoundingClientRect();"
    crisp += "return [i.naturalWidth, getComputedStyle(i).imageRendering, b.width > 300]"
    wait_for(browser, lambda b: b.execute_script(crisp) == [8, "pixelated", True])


def decide_by_keys(browser, rows):
    """Decide about five of six images; what should be exported: decision, label and note."""
    one, two, three, four, five, _ = rows
    predicted = rows[one]["label"]
    other = next(name for name in COLOURS if name != predicted)
    # A number chooses a class and goes on; Enter and A accept; E is unsure.
    press(browser, str(COLOURS.index(other) + 1))
    assert text(browser, "name") == two
    assert facts(browser, one) == [f"{other} (was {predicted})", "\u25c6"]
    press(browser, Keys.ENTER, "a", "e", "n")
    browser.switch_to.active_element.send_keys("blurred 1a", Keys.ESCAPE)
    assert text(browser, "progress").startswith("4 of 6 decided")
    # Z takes decisions back in their order, Y brings them again.
    press(browser, "z", "z")
    assert text(browser, "name") == three
    assert text(browser, "progress").startswith("2 of 6 decided")
    press(browser, "y")
    assert facts(browser, three)[1] == "\u2713"
    # The number of the predicted class accepts it; the same number again undoes that.
    number = str(COLOURS.index(rows[four]["label"]) + 1)
    for mark in ("\u2713", ""):
        open_case(browser, four)
        press(browser, number)
        assert facts(browser, four)[1] == mark
    press(browser, "r")
    return {
        one: ("corrected", other, ""),
        two: ("accept", rows[two]["label"], ""),
        three: ("accept", rows[three]["label"], ""),
        four: ("reject", "", ""),
        five: ("", "", "blurred 1a"),
    }


def test_labels_are_decided_by_keys_and_trained_on(browser, downloads, maps, rows, segconf):
    open_page(browser, maps)
    expected = decide_by_keys(browser, rows)
    browser.refresh()  # what was decided is kept
    wait_for(browser, lambda b: text(b, "progress").startswith("4 of 6 decided"))
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    document, decided = exported(browser, downloads)
    found = {name: (one["decision"], one["label"], one["note"]) for name, one in decided.items()}
    assert found == expected
    click(browser, "export-csv")
    lines = list(csv.DictReader(downloaded(downloads, ".csv").splitlines()))
    assert {r["case"]: (r["decision"], r["label"], r["note"]) for r in lines} == expected

    # The file goes into the folder, and what is labeled there into the next training.
    Path("corrections.json").write_text(json.dumps(document))
    code, said, error = segconf("review", maps, "--import", "corrections.json")
    assert code == 0, error
    assert "5 decisions and 1 corrected label taken." in said
    given = {case: label for case, (_, label, _) in expected.items() if label}
    assert table(maps / "labels.csv") == [
        {"image": rows[case]["file"], "label": given[case]} for case in sorted(given)
    ]
    arguments = ("--corrections", maps, "--epochs", "1", "--out", "second", *CHOSEN)
    code, _, error = segconf("train", maps.parent / "data", *arguments)
    assert code == 0, error
    split = RunFolder(Path("second")).data()
    corrected, *accepted = given
    assert split.corrected == {corrected: given[corrected]}
    assert split.accepted == {case: given[case] for case in accepted}
    assert set(given) <= set(split.ids["labeled"])
    assert len(split.ids["unlabeled"]) == UNLABELED - 3
    code, _, error = segconf("train", "--resume", "second", "--epochs", "2")
    assert code == 0, error


def test_decisions_that_do_not_fit_the_data_set_are_refused(data, segconf, tmp_path):
    head = "case,file,decision,note,decided_at,image_sha256,label\n"
    maps = tmp_path / "maps"
    maps.mkdir()
    arguments = ("train", data / "data", "--corrections", "maps", "--out", "second", *CHOSEN)
    for rows, words in (
        ("18,18.png,accept,,,,violet\n", "18: accepted as 'violet', which is no class"),
        ("99,99.png,corrected,,,,red\n", "99: corrected, but no training image of that name"),
        ("18,18.png,accept,,,,red\n18,18.png,reject,,,,\n", "two decisions about 18"),
        ("18,18.png,accept,,,00,red\n", "is another image than it was then"),
    ):
        (maps / "decisions.csv").write_text(head + rows)
        code, _, error = segconf(*arguments)
        assert code == 2
        assert words in " ".join(error.split())
        assert not (tmp_path / "second").exists()


def hundred_classes(path):
    """Three images and a hundred classes, of which the last are the likeliest; and a broken one."""
    names = [f"class {number:02d}" for number in range(100)]
    values = LABEL_RECORD.values
    scale = {**values["confidence"]["scale"], "classes": 100}
    record = {**values, "model": {**values["model"], "classes": names}, "id": "hundred"}
    probabilities = (np.arange(100) + 1) / 5050
    rows = [
        LabelRow(str(n), f"{n}.png", str(n), names[99], tuple(probabilities), (), 1.0, 32, 32)
        for n in range(3)
    ]
    rows.append(LabelRow("broken", "broken.png", "", flags=("not predicted",), error="broken"))
    record = RunRecord({**record, "confidence": {"scale": scale}})
    folder = write_label_folder(path, rows, record)
    for row in rows[:3]:
        write_label_pictures(folder, row, np.full((3, 32, 32), 90, np.uint8))
    assemble(folder)
    return folder.path


def test_one_of_a_hundred_classes_is_found_by_its_name(browser, downloads, tmp_path):
    open_page(browser, hundred_classes(tmp_path / "maps"))
    assert queue(browser) == ["broken", "0", "1", "2"]
    press(browser, "a", "1")  # there is nothing to accept
    assert text(browser, "progress").startswith("0 of 4 decided")
    press(browser, Keys.ARROW_RIGHT)
    shown = shown_classes(browser)
    # The likeliest first, and numbers for nine of them: 100 / 5050 is 2.0%.
    assert shown[0][:3] == ("1", "class 99", "2.0%")
    assert [one[:2] for one in shown[8:10]] == [("9", "class 91"), ("", "class 90")]
    assert len(shown) == 100
    press(browser, "2", "c")
    browser.switch_to.active_element.send_keys("S 0")
    assert [one[0] for one in shown_classes(browser)] == ["\u21b5", *[""] * 9]
    browser.switch_to.active_element.send_keys("7", Keys.ENTER)
    assert text(browser, "name") == "2"
    _, decided = exported(browser, downloads)
    assert {name: one["label"] for name, one in decided.items()} == {
        "0": "class 98",
        "1": "class 07",
    }
    assert len(shown_classes(browser)) == 100  # the search is over


def test_decided_images_leave_the_queue_of_undecided_ones_and_come_back(browser, tmp_path):
    open_page(browser, hundred_classes(tmp_path / "maps"))
    browser.execute_script(
        "const f = document.getElementById('filter'); f.value = 'undecided';"
        "f.dispatchEvent(new Event('change'))"
    )
    open_case(browser, "0")
    press(browser, "a")
    assert (queue(browser), text(browser, "name")) == (["broken", "1", "2"], "1")
    press(browser, "3", "a")
    assert queue(browser) == ["broken"]
    press(browser, "z", "z")
    assert (queue(browser), text(browser, "name")) == (["broken", "1", "2"], "1")
    press(browser, "z")
    assert queue(browser) == ["broken", "0", "1", "2"]


def test_a_screen_reader_finds_a_name_for_everything(browser, maps):
    open_page(browser, maps)
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    named = [
        node
        for node in nodes
        if not node["ignored"] and node["role"]["value"] in {"button", "group", "searchbox"}
    ]
    names = [node.get("name", {}).get("value") for node in named]
    assert len(names) > 20
    assert all(names)
    assert "Choose a class" in names
    assert sum(name.endswith("predicted") for name in names) == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_can_be_read_and_nothing_leaves_a_narrow_window(browser, tmp_path, scheme):
    set_colours(browser, scheme)
    open_page(browser, hundred_classes(tmp_path / "maps"))
    press(browser, Keys.ARROW_RIGHT, "3", Keys.ARROW_LEFT)
    contrasts = browser.execute_script(CONTRASTS)
    assert len(contrasts) > 100
    assert [one for one in contrasts if one[0] < 4.5] == []
    for width in (1280, 1000, 600, 400):
        set_size(browser, width, 800)
        script = (
            "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        assert browser.execute_script(script) <= 0
    set_size(browser, 1280, 800)
    set_colours(browser, "light")
