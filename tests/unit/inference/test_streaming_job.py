"""A job looks at its files one after another, and continues what another one has begun."""

import pytest

from segconf.images.io import read_header
from segconf.inference import pipeline
from segconf.inference.pipeline import PredictOptions
from segconf.inference.predict import predict
from tests.tiny_models import brightness_model, disc, write_picture

COUNT = 12
CONTINUE = PredictOptions(skip_existing=True, workers=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return brightness_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def images(tmp_path):
    for number in range(COUNT):
        write_picture(tmp_path / "images" / f"{number:02d}.png", disc(40, 40, seed=number))
    return tmp_path / "images"


def test_the_first_result_does_not_wait_for_the_headers_of_all(
    tmp_path, images, model, monkeypatch
):
    looked_at, seen = [], []

    def counted(path):
        looked_at.append(path.name)
        return read_header(path)

    def progress(done, total):
        seen.append((done, total, len(looked_at)))

    monkeypatch.setattr(pipeline, "read_header", counted)
    predict(
        model, images, tmp_path / "maps", options=PredictOptions(workers=1), on_progress=progress
    )
    # One worker and two images to spare are on their way, and the next one is known.
    first = next(headers for done, _, headers in seen if done)
    assert first <= 1 + 2 + 1
    assert looked_at == [f"{number:02d}.png" for number in range(COUNT)]
    assert seen[-1] == (COUNT, COUNT, COUNT)


def test_only_what_is_missing_changed_or_damaged_is_predicted_again(tmp_path, images, model):
    maps = tmp_path / "maps"
    predict(model, images, maps)
    write_picture(images / "03.png", disc(40, 40, seed=99))
    (maps / "masks/05.png").unlink()
    (maps / "review/rows/07.json").write_text("{", encoding="utf-8")
    (maps / "review/rows/08.json").unlink()
    (maps / "review/structures/09.csv").write_text("case\n", encoding="utf-8")

    report = predict(model, images, maps, options=CONTINUE)

    assert [row.case for row in report.rows] == ["03", "05", "07", "08", "09"]
    assert report.skipped == COUNT - 5
    assert len((maps / "cases.csv").read_text(encoding="utf-8").splitlines()) == 1 + COUNT


def test_a_file_that_is_gone_does_not_stop_the_others(tmp_path, images, model):
    (images / "99.png").symlink_to("nowhere.png")
    report = predict(model, images, tmp_path / "maps")
    (broken,) = report.broken
    assert broken.case == "99"
    assert "99.png" in broken.error
    assert len(report.rows) == COUNT + 1
