"""The next round: earlier labels, queried images and accepted predictions, kept on resume."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from segconf.data.cache import PixelCache
from segconf.data.corrections import CorrectionRecord, write_correction
from segconf.data.datasets.dataset import find_cases
from segconf.data.decisions import Decision, decisions_file, write_decisions
from segconf.data.preprocessing import Preprocessing
from segconf.data.training_set import prepare_training
from segconf.errors import ConfigError, DataError, TrainingError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.files import file_hash
from segconf.runs.run_folder import RunFolder
from segconf.training.labels import label
from tests.conftest import write_folder
from tests.training_runs import (
    Interrupter,
    TinyNetwork,
    contents,
    differences,
    settings,
    train_tiny,
    use_network,
)

NEXT = {"data__labeled": None, "data__labels_from_query": "next.csv", "training__epochs": 2}


@pytest.fixture
def first(folder_dataset, tmp_path, monkeypatch):
    """A run with three labels, and a list of two more images beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ids.txt").write_text("case_001\ncase_004\ncase_006\n")
    listed = {"data__labeled": None, "data__labeled_list": "ids.txt"}
    train_tiny(folder_dataset, tmp_path / "first", training__epochs=1, **listed)
    write_list(tmp_path / "next.csv", ["case_005", "case_000"])
    return tmp_path / "first"


def write_list(path, ids, run="first"):
    rows = [f"{rank},{id_},0.5,why,{run}" for rank, id_ in enumerate(ids, start=1)]
    path.write_text("\n".join(["rank,id,score,reason,run", *rows]) + "\n")


def saved(run):
    return json.loads((run / "split.json").read_text())


@pytest.mark.usefixtures("first")
def test_the_labels_of_the_run_and_the_listed_ones(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "second", **NEXT)
    split = saved(tmp_path / "second")
    assert split["labeled"] == ["case_000", "case_001", "case_004", "case_005", "case_006"]
    assert split["unlabeled"] == ["case_002", "case_003", "case_007"]
    assert "accepted" not in split


@pytest.mark.usefixtures("first")
def test_a_list_that_changed_does_not_change_a_run(folder_dataset, tmp_path):
    train_tiny(folder_dataset, tmp_path / "whole", **NEXT)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, tmp_path / "second", listener=Interrupter(1, 1), **NEXT)
    write_list(tmp_path / "next.csv", ["case_007"])  # the next query, under the same name
    train_tiny(folder_dataset, tmp_path / "second", resume=True, **NEXT)
    assert differences(contents(tmp_path / "whole"), contents(tmp_path / "second")) == []
    changes = NEXT | {"data__labels_from_query": None}
    with pytest.raises(TrainingError, match=r"data.labels_from_query was next.csv, now None"):
        train_tiny(folder_dataset, tmp_path / "second", resume=True, **changes)


def test_masks_that_come_later_move_no_image(tmp_path, monkeypatch):
    """Without val/ and test/ a share of the images with masks is held out: it must not change."""
    monkeypatch.chdir(tmp_path)
    use_network(monkeypatch, TinyNetwork)
    root = write_folder(tmp_path / "discs", 20, masks=10)
    shares = {"data__validation_fraction": 0.2, "data__test_fraction": 0.2}
    train_tiny(root, tmp_path / "first", training__epochs=1, data__labeled=None, **shares)
    before = saved(tmp_path / "first")
    assert (len(before["validation"]), len(before["test"]), len(before["labeled"])) == (2, 2, 6)
    write_folder(root, 20)  # all of them have a mask now
    found = find_cases(str(root))
    assert {case.id for case in found.test} != set(before["test"])
    new = before["unlabeled"][:8]
    write_list(tmp_path / "next.csv", new)
    train_tiny(root, tmp_path / "second", **shares, **NEXT)
    after = saved(tmp_path / "second")
    assert after["validation"] == before["validation"]
    assert after["test"] == before["test"]
    assert after["labeled"] == sorted([*before["labeled"], *new])
    for run in ("first", "second"):
        evaluation = evaluate(tmp_path / run, EvaluationOptions(device="cpu"))
        assert [row.case for row in evaluation.report.cases] == before["test"]


@pytest.fixture
def maps(tmp_path):
    """Predictions of two images, one accepted: a square that is nothing like the true disc."""
    square = np.zeros((32, 32), np.uint8)
    square[:5, :7] = 1
    (tmp_path / "maps/masks").mkdir(parents=True)
    for name in ("case_002", "case_003"):
        Image.fromarray(square).save(tmp_path / f"maps/masks/{name}.png")
    decide(tmp_path / "maps", case_002="accept", case_003="edit")
    return tmp_path / "maps"


def decide(maps, **decisions):
    rows = [Decision(case, f"{case}.png", decision) for case, decision in decisions.items()]
    write_decisions(decisions_file(maps), rows)


def correct(maps, case, image):
    """A corrected mask: the lower half of the picture."""
    mask = np.zeros((32, 32), np.uint8)
    mask[16:] = 1
    record = CorrectionRecord(
        case=case,
        file=f"{case}.png",
        slice=None,
        classes=2,
        corrected_at="2026-01-01T00:00:00Z",
        model_sha256="",
        image_sha256=file_hash(image),
        mask_sha256="",
    )
    write_correction(maps, record, mask)
    return mask


ACCEPT = NEXT | {"data__corrections": ["maps"]}


@pytest.mark.usefixtures("first")
def test_corrected_masks_are_labels_and_counted(folder_dataset, tmp_path, maps):
    mask = correct(maps, "case_003", folder_dataset / "images/case_003.png")
    decide(maps, case_002="accept", case_003="corrected")
    _, split = label(find_cases(str(folder_dataset)), settings(**ACCEPT))
    assert (split.accepted, split.corrected) == ({"case_002"}, {"case_003"})
    pixels = prepare_training(PixelCache(folder_dataset, Preprocessing.of(settings())), split)
    rows = dict(zip(pixels.labeled_rows.tolist(), pixels.labeled_masks, strict=True))
    assert np.array_equal(rows[3], mask)

    train_tiny(folder_dataset, tmp_path / "second", **ACCEPT)
    found = saved(tmp_path / "second")
    assert (found["labels"], found["reviewed"]) == (7, {"accepted": 1, "corrected": 1})
    assert found["corrected"] == {"case_003": str(maps / "corrected/case_003.png")}
    assert found["accepted"] == {"case_002": str(maps / "masks/case_002.png")}
    assert found["unlabeled"] == ["case_007"]  # what `segconf query` may ask for
    again = RunFolder(tmp_path / "second").data()
    assert again.corrected == found["corrected"]


def test_masks_of_a_review_alone_are_enough(folder_dataset, tmp_path, maps):
    """A folder of images without masks: predicted, reviewed, and trained on."""
    shutil.rmtree(folder_dataset / "masks")
    correct(maps, "case_003", folder_dataset / "images/case_003.png")
    decide(maps, case_002="accept", case_003="corrected")
    reviewed = {"data__labeled": None, "data__corrections": [str(maps)]}
    for resume in (False, True):  # the same run goes on with the labels that it remembers
        epochs = 2 if resume else 1
        run = tmp_path / "run"
        train_tiny(folder_dataset, run, resume=resume, training__epochs=epochs, **reviewed)
        split = saved(run)
        assert split["labeled"] == ["case_002", "case_003"]
        assert split["reviewed"] == {"accepted": 1, "corrected": 1}
        assert len(split["unlabeled"]) == 6


def test_a_review_that_accepted_nothing_gives_no_labels(folder_dataset, maps):
    shutil.rmtree(folder_dataset / "masks")
    decide(maps, case_002="reject", case_003="edit")
    reviewed = settings(data__labeled=None, data__corrections=[str(maps)])
    with pytest.raises(DataError, match=r"none of the 8 training images has a mask.*corrections"):
        label(find_cases(str(folder_dataset)), reviewed)


@pytest.mark.usefixtures("first")
def test_the_later_of_two_reviews_counts(folder_dataset, tmp_path, maps):
    later = tmp_path / "later"
    correct(later, "case_002", folder_dataset / "images/case_002.png")
    decide(later, case_002="corrected")
    both = NEXT | {"data__corrections": [str(maps), str(later)]}
    _, split = label(find_cases(str(folder_dataset)), settings(**both))
    assert (split.accepted, split.corrected) == (frozenset(), {"case_002"})


@pytest.mark.usefixtures("first")
def test_a_correction_of_another_image_is_refused(folder_dataset, maps):
    correct(maps, "case_003", folder_dataset / "images/case_004.png")
    decide(maps, case_003="corrected")
    with pytest.raises(
        DataError, match=r"case_003: corrected, but .*case_003\.png is another image"
    ):
        label(find_cases(str(folder_dataset)), settings(**ACCEPT))


@pytest.mark.usefixtures("first")
def test_accepted_predictions_are_used_and_marked(folder_dataset, tmp_path, maps):
    _, split = label(find_cases(str(folder_dataset)), settings(**ACCEPT))
    pixels = prepare_training(PixelCache(folder_dataset, Preprocessing.of(settings())), split)
    rows = dict(zip(pixels.labeled_rows.tolist(), pixels.labeled_masks, strict=True))
    assert sorted(rows) == [0, 1, 2, 4, 5, 6]
    square = np.asarray(Image.open(maps / "masks/case_002.png"))
    assert np.array_equal(rows[2], square)
    assert not np.array_equal(rows[4], square)

    train_tiny(folder_dataset, tmp_path / "second", **ACCEPT)
    found = saved(tmp_path / "second")
    assert found["accepted"] == {"case_002": str(maps / "masks/case_002.png")}
    assert "case_002" in found["labeled"]
    assert "case_003" in found["unlabeled"]


@pytest.mark.usefixtures("first")
def test_accepted_labels_are_remembered(folder_dataset, tmp_path, maps):
    train_tiny(folder_dataset, tmp_path / "whole", **ACCEPT)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(folder_dataset, tmp_path / "second", listener=Interrupter(1, 1), **ACCEPT)
    decide(maps, case_003="accept")  # more review in the meantime
    train_tiny(folder_dataset, tmp_path / "second", resume=True, **ACCEPT)
    assert differences(contents(tmp_path / "whole"), contents(tmp_path / "second")) == []

    # A third round keeps them, without asking for the decisions again.
    write_list(tmp_path / "next.csv", ["case_007"], run="second")
    train_tiny(folder_dataset, tmp_path / "third", **NEXT)
    assert saved(tmp_path / "third")["accepted"] == saved(tmp_path / "second")["accepted"]
    assert set(saved(tmp_path / "third")["labeled"]) == {*saved(tmp_path / "second")["labeled"],
                                                        "case_007"}  # fmt: skip

    mask = maps / "masks/case_002.png"
    content = mask.read_bytes()
    Image.fromarray(np.eye(32, dtype=np.uint8)).save(mask)
    with pytest.raises(TrainingError, match="masks have other pixels"):
        train_tiny(folder_dataset, tmp_path / "second", resume=True, **ACCEPT)
    mask.unlink()
    with pytest.raises(DataError, match="accepted as the label of case_002, but gone"):
        train_tiny(folder_dataset, tmp_path / "second", resume=True, **ACCEPT)
    mask.write_bytes(content)


@pytest.mark.usefixtures("first")
def test_a_true_mask_wins_over_an_accepted_prediction(folder_dataset, tmp_path, maps):
    decide(maps, case_001="accept", case_002="accept")
    square = tmp_path / "maps/masks/case_002.png"
    (tmp_path / "maps/masks/case_001.png").write_bytes(square.read_bytes())
    _, split = label(find_cases(str(folder_dataset)), settings(**ACCEPT))
    assert split.accepted == {"case_002"}
    masks = {case.id: case.mask_path for case in split.labeled}
    assert masks["case_001"] == folder_dataset / "masks/case_001.png"


def test_nothing_is_accepted_unless_asked(first, folder_dataset, maps):
    assert maps.is_dir()
    _, split = label(find_cases(str(folder_dataset)), settings(**NEXT))
    assert split.accepted == frozenset()
    assert len(split.labeled) == len(RunFolder(first).data().ids["labeled"]) + 2


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    ("decisions", "named"),
    [
        ({"case_002": "accept", "case_009": "accept"}, "case_009: accepted, but no training image"),
        ({"case_007": "accept"}, "maps/masks/case_007.png: the accepted mask of case_007 is gone"),
    ],
)
def test_accepted_cases_that_cannot_be_used(folder_dataset, maps, decisions, named):
    square = (maps / "masks/case_002.png").read_bytes()
    (maps / "masks/case_009.png").write_bytes(square)
    decide(maps, **decisions)
    with pytest.raises(DataError) as refusal:
        label(find_cases(str(folder_dataset)), settings(**ACCEPT))
    assert named in str(refusal.value)


def test_an_id_without_a_mask_is_named(first, folder_dataset):
    assert first.is_dir()
    (folder_dataset / "masks/case_005.png").unlink()
    with pytest.raises(DataError, match=r"case_005: this image has no mask. Put one beside the"):
        label(find_cases(str(folder_dataset)), settings(**NEXT))


@pytest.mark.usefixtures("first")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("id\ncase_005\n", "next.csv: not a readable table (no column called run)"),
        ("id,run\ncase_005,first\ncase_000,other\n", "names 2 runs instead of one"),
        ("id,run\ncase_005,gone\n", "the run that was queried is not at gone any more"),
        (None, "next.csv: no such file"),
    ],
)
def test_a_list_that_query_did_not_write(folder_dataset, tmp_path, text, named):
    (tmp_path / "next.csv").unlink()
    if text is not None:
        (tmp_path / "next.csv").write_text(text)
    with pytest.raises(DataError) as refusal:
        label(find_cases(str(folder_dataset)), settings(**NEXT))
    assert named in str(refusal.value)


def test_contradictions_of_the_configuration():
    with pytest.raises(ConfigError, match=r"data.pseudo_labels: is called data.corrections"):
        settings(data__pseudo_labels="decisions.json")
    assert settings(data__pseudo_labels=None).data.corrections == ()  # a run of an earlier version
    chosen = settings(data__labels_from_query="next.csv").data
    assert (chosen.labeled, str(chosen.labels_from_query)) == (None, "next.csv")
