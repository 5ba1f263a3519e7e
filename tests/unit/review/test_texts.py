"""The words of the review page: every language says everything."""

import json
import re
from importlib.resources import files

import pytest

from segconf.results import label_rows, rows
from segconf.review.page import SCRIPTS

WEB = files("segconf.review").joinpath("web")
TEXTS = json.loads(WEB.joinpath("texts.json").read_text(encoding="utf-8"))


def read(name):
    return WEB.joinpath(name).read_text(encoding="utf-8")


@pytest.mark.parametrize("language", TEXTS)
def test_all_languages_have_the_same_words_and_places(language):
    english, other = TEXTS["en"], TEXTS[language]
    assert other.keys() == english.keys()
    for key in english.keys() - {"flags"}:
        assert other[key].strip()
        places = [sorted(re.findall(r"\{(\w+)\}", text[key])) for text in (english, other)]
        assert places[0] == places[1], key
    for key in ("keysList", "keysDraw", "keysLabels"):
        spans = read("page.html").split(f'id="{key}-keys"')[1].split("</div>")[0].count("<span>")
        assert len(other[key].split("|")) == spans


def test_every_word_that_the_page_asks_for_is_there_and_no_other():
    scripts = "".join(read(f"{name}.js") for name in SCRIPTS)
    html = read("page.html")
    asked = set(re.findall(r'data-(?:text|hint|label|placeholder)="(\w+)"', html))
    asked |= set(re.findall(r'\bt\(\s*"(\w+)"', scripts))
    unknown = asked - TEXTS["en"].keys()
    assert unknown == set()
    quoted = asked | set(re.findall(r'"(\w+)"', scripts))
    assert TEXTS["en"].keys() - quoted - {"language", "flags"} == set()


def test_the_flags_of_a_prediction_are_translated():
    known = {rows.EMPTY_MASK, rows.OUT_OF_DISTRIBUTION, rows.UNREADABLE, rows.NOT_FINITE}
    known.add(label_rows.LOW_CONFIDENCE)
    for language, texts in TEXTS.items():
        assert language == "en" or known <= texts["flags"].keys()


def test_every_script_says_what_it_holds():
    assert {name.removesuffix(".js") for name in names(".js")} == set(SCRIPTS)
    for name in SCRIPTS:
        assert read(f"{name}.js").startswith("// ")
        assert len(read(f"{name}.js").splitlines()) <= 300


def names(suffix):
    return [path.name for path in WEB.iterdir() if path.name.endswith(suffix)]
