"""YAML files that are hostile, odd or broken: each is one mistake with its place."""

import pytest

from segconf.config.loading import load_config, save_config
from segconf.config.yaml_text import parse_yaml, yaml_text
from segconf.errors import ConfigError

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)
)
HOSTILE = {
    LAUGHS: "aliases make more than",
    "a: &a [*a]": "aliases make more than",
    "a: " + "[" * 5000 + "]" * 5000: "line 1, column .*nested too deeply",
    "a: " + "{a: " * 5000: "nested too deeply",
    "training: {epochs: 2020-01-01}": "training.epochs = '2020-01-01': expected a whole number",
    "training: !!set {a, b}": "line 1, column 11",
    "training: {epochs: !!binary aGk=}": "line 1, column 20",
    "training: !!python/object:os.system {}": "line 1, column 11",
    f"training: {{epochs: {'9' * 5000}}}": "line 1, column 20.*not a number that can be used",
    f"training: {{epochs: 0x{'f' * 5000}}}": "not a number that can be used",
    "training: {epochs: 12:30}": "'12:30' is not a number that can be used",
    f"training: {{learning_rate: {'9' * 5000}.0}}": "training.learning_rate = inf",
    "training: {seed: .nan}": "training.seed = nan",
    "1: 2": "Keys should be strings",
    "training: {1: 2}": "Keys should be strings",
    "? [a, b]\n: c": "unhashable key",
    "a: 1\na: 2": "'a' is given twice",
    "training: *x": "undefined alias",
    "\0": "unacceptable character",
    "- a": "expected sections",
    "training: {method: " + "x" * 5000 + "}": r"x{90}.*\.\.\.",
}


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_file_is_one_mistake(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=HOSTILE[text]) as refused:
        load_config(tmp_path / "a.yaml")
    assert str(refused.value).startswith(str(tmp_path / "a.yaml"))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("text", [text for text in HOSTILE if text.startswith("a: ")])
def test_a_hostile_value_is_one_mistake(text):
    with pytest.raises(ConfigError, match=r"set training\.epochs"):
        load_config(overrides=[f"training.epochs={text.removeprefix('a: ')}"])


def test_a_large_file_and_a_folder_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("# " + "x" * 1_000_000)
    for path in (tmp_path / "a.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            load_config(path)


def test_plain_values_keep_their_meaning():
    text = "a: 1e-4\nb: [0x10, -3, 1_000, .5]\nc: &x {d: true}\ne: *x\nf: null\ng: 2020-01-01"
    assert parse_yaml(text) == {
        "a": 1e-4,
        "b": [16, -3, 1000, 0.5],
        "c": {"d": True},
        "e": {"d": True},
        "f": None,
        "g": "2020-01-01",
    }


def test_a_configuration_is_read_back(tmp_path):
    config = load_config(overrides=["training.seed=9223372036854775807"])
    save_config(config, tmp_path / "a.yaml")
    assert load_config(tmp_path / "a.yaml") == config


def test_text_that_looks_like_a_number_stays_text():
    values = {"names": ["1e5", "-3E+2", "1.e4", "12:30", "0x1f", "no", "2020-01-01"], "1e5": 1e5}
    assert parse_yaml(yaml_text(values)) == values
