"""`segconf demo` at a tiny size: every step, after an interruption, and again without repeating."""

import json
import re

import pytest
from typer.testing import CliRunner

from segconf.config.loading import load_config
from segconf.demo_tour import MODEL_PAGE, demo_config, run_demo
from segconf.errors import FileError
from segconf.packaging import browser_page
from segconf.packaging.web_runtime import cache_file
from segconf.synthetic.generation import DemoParameters
from segconf.training.epoch import TrainingListener
from segconf_cli.main import app
from tests.model_pages import NO_RUNTIME
from tests.training_runs import Interrupter

SMALL = DemoParameters(training=10, validation=3, test=4, size=(48, 64))


class Recorder(TrainingListener):
    def __init__(self):
        self.epochs = []

    def on_epoch(self, summary):
        self.epochs.append(summary.epoch)


def tiny_config():
    return load_config(
        overrides=[
            "data.size=[32, 64]",
            "data.labeled=4",
            "model.encoder=tu-test_efficientnet",
            "model.encoder_weights=none",
            "training.epochs=1",
            "training.batch_labeled=2",
            "training.batch_unlabeled=3",
            "training.device=cpu",
        ]
    )


def test_the_whole_journey(tmp_path, monkeypatch):
    monkeypatch.setattr(browser_page, "find_runtime", lambda _: NO_RUNTIME)
    cache_file().touch()
    seen, listener = set(), Recorder()
    with pytest.raises(KeyboardInterrupt):
        run_demo(
            tmp_path / "demo",
            listener=Interrupter(epoch=0, step=1),
            on_progress=lambda label, done, total: seen.add(label),  # noqa: ARG005
            parameters=SMALL,
            config=tiny_config(),
        )
    result = run_demo(
        tmp_path / "demo",
        listener=listener,
        on_progress=lambda label, done, total: seen.add(label),  # noqa: ARG005
        parameters=SMALL,
        config=tiny_config(),
    )
    assert listener.epochs == [0, 1, 2, 0]  # three of softmax, one of consistency
    assert {"synthetic images", "test images", "predictions"} <= seen
    assert [row.name for row in result.comparison.rows] == [
        "softmax (4 labels)",
        "consistency (4 labels)",
    ]
    assert (result.comparison_folder / "table.md").is_file()
    assert result.figure.read_bytes().startswith(b"\x89PNG")
    page = result.review_page.read_text(encoding="utf-8")
    assert "ISIC_2000000" in page
    assert len(list((tmp_path / "demo/maps/masks").glob("*.png"))) == 4
    assert result.model_page == tmp_path / "demo/segconf.html"
    assert "Drop images" in result.model_page.read_text(encoding="utf-8")
    again = Recorder()
    for is_cached, reason in ((False, "segconf package"), (True, "cannot be written")):
        result.model_page.unlink(missing_ok=True)
        cache_file().touch() if is_cached else cache_file().unlink()
        monkeypatch.setattr(browser_page, "find_runtime", on_a_full_disk)
        repeated = run_demo(
            tmp_path / "demo",
            listener=again,
            on_progress=lambda *_: None,
            parameters=SMALL,
            config=tiny_config(),
        )
        assert again.epochs == []
        assert repeated.model_page is None
        assert reason in repeated.no_model_page


def on_a_full_disk(path):
    raise FileError(path, "the disk is full", "Make room.")


def test_the_quick_demo_predicts_with_the_pretrained_model(tmp_path):
    (tmp_path / MODEL_PAGE).touch()  # of an earlier demo
    shown = CliRunner().invoke(app, ["demo", "--quick", "--out", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    said = re.search(
        r"predicted 12 synthetic images.*?(\d+) of them are flagged", shown.output, re.S
    )
    rows = (tmp_path / "pretrained/maps/cases.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 13
    assert sum("out of distribution" in row for row in rows) == int(said[1])
    record = json.loads((tmp_path / "pretrained/maps/run.json").read_text(encoding="utf-8"))
    assert record["chosen"]["model"] == "pretrained model isic2017"
    assert not (tmp_path / "runs").exists()


def test_the_settings_are_found_in_a_checkout():
    config = demo_config()
    assert config.model.encoder_weights == "none"  # works offline
    assert config.training.epochs >= 5
