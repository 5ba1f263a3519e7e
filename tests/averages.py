"""What a method that averages several networks must give: the mean of their softmax."""

import numpy as np
from typer.testing import CliRunner

from segconf.images.io import read_confidence
from segconf.images.masks import read_mask
from segconf_cli.main import app
from tests.tiny_models import disc, write_picture


def pixels(seed=0):
    return disc(32, 32, seed=seed)[None]  # (1, h, w, C)


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def assert_predicts_the_mean(run, models, folder):
    """Predict pictures by the command and compare the maps with the mean of the models."""
    for number in range(3):
        write_picture(folder / f"images/{number}.png", disc(32, 32, seed=number))
    command = ["predict", str(folder / "images"), "--out", str(folder / "maps")]
    result = CliRunner().invoke(app, [*command, "--checkpoint", str(run)])
    assert result.exit_code == 0, result.output
    for number in range(3):
        chances = [softmax(model.grid_logits(pixels(number))) for model in models]
        mean = np.mean(chances, axis=0)[0]  # (K, h, w)
        saved = read_mask(folder / f"maps/masks/{number}.png")
        assert np.array_equal(saved, mean.argmax(axis=0))
        confidence = read_confidence(folder / f"maps/confidence/{number}.png")
        np.testing.assert_allclose(confidence, mean.max(axis=0), atol=2e-5)
