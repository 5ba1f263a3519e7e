"""The command line offers what the library has, and speaks in its own flags."""

from typing import get_args

import pytest

import segconf
from segconf.active.strategies import STRATEGIES
from segconf.calibration.calibrator_fits import Scaling as FittedScaling
from segconf.images.image_format import MapFormat as ImageMapFormat
from segconf.overlays import overlay
from segconf.registry import METHODS
from segconf.review.export import Format as ExportFormat
from segconf_cli.calibrate import Scaling
from segconf_cli.export import Format
from segconf_cli.main import with_flags
from segconf_cli.options import MapFormat, MethodName, Strategy, Style


@pytest.mark.parametrize(
    ("choices", "known"),
    [
        (Strategy, STRATEGIES),
        (Style, get_args(overlay.Style)),
        (Format, get_args(ExportFormat)),
        (MethodName, METHODS.names()),
        (MapFormat, get_args(ImageMapFormat)),
        (Scaling, get_args(FittedScaling)),
    ],
    ids=["strategy", "style", "format", "method", "map format", "scaling"],
)
def test_every_choice_of_the_library_is_an_option(choices, known):
    assert [choice.value for choice in choices] == list(known)


@pytest.mark.parametrize(
    ("command", "message", "shown"),
    [
        ("query", "budget = 0: expected a number from 1.", "--budget 0: expected a number from 1."),
        ("calibrate", "target_dice = 3: too large", "--target-dice 3: too large"),
        ("train", "set training.epochs: expected", "--set training.epochs: expected"),
        ("train", "set: training.epoch: unknown key", "--set: training.epoch: unknown key"),
        ("predict", "shard 3: expected I/N, such as 1/4.", "--shard 3: expected I/N, such as 1/4."),
        ("predict", "/data/a.png: no such file.", "/data/a.png: no such file."),
        ("train", "model.encoder = x: unknown", "model.encoder = x: unknown"),
        ("predict", "images: no image found", "images: no image found"),
        ("export", "images: no image found", "images: no image found"),
        ("export", "images = x: no image found", "--images x: no image found"),
        ("", "images = x: no image found", "images = x: no image found"),
    ],
)
def test_values_become_flags(tmp_path, monkeypatch, command, message, shown):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()  # an option of `export`, an argument of `predict`
    assert with_flags(message, command) == shown


def test_the_api_is_complete_and_lazy():
    names = (
        *("train", "evaluate", "predict", "calibrate", "load_model", "load_config"),
        *("ConfidenceMetrics", "PredictionHistory", "ranking_loss"),
    )
    assert set(names) <= set(segconf.__all__)
    assert all(getattr(segconf, name).__name__ == name for name in names)
    with pytest.raises(AttributeError, match="no attribute 'magic'"):
        segconf.magic  # noqa: B018
