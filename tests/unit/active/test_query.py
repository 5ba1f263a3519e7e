"""Which images are asked for: planted hard ones first, decisions before scores, no copies."""

import csv
import hashlib
import json

import numpy as np
import PIL.Image
import pytest

from segconf.active.query import Query, query
from segconf.active.queue import write_contact_sheet, write_queue
from segconf.errors import ConfigError, DataError
from segconf.runs.run_folder import RunFolder
from tests.active_runs import (
    GreyNetwork,
    confidence_of,
    disc,
    grey_of,
    write_history,
    write_run,
)
from tests.dicom_objects import photograph
from tests.tiny_models import write_picture
from tests.training_runs import use_network

EASY = {f"easy_{number}": disc(225 + 5 * number, 5 + number) for number in range(5)}
HARD = {"hard_a": disc(125, 105), "hard_b": disc(135, 95)}
LABELED = {"labeled_a": disc(255, 0), "labeled_b": disc(250, 10)}


@pytest.fixture(autouse=True)
def _grey(monkeypatch):
    use_network(monkeypatch, GreyNetwork)


@pytest.fixture
def run(tmp_path):
    """Five easy and two hard unlabeled images; the easiest one comes first by name."""
    return write_run(tmp_path, EASY | HARD | LABELED, labeled=list(LABELED)).path


def ids(queue):
    return [choice.id for choice in queue.choices]


@pytest.mark.parametrize(
    "strategy", ["confidence", "boundary-confidence", "entropy", "expected-dice"]
)
def test_planted_hard_images_come_first(run, strategy):
    queue = query(run, Query(2, strategy, device="cpu"))
    assert ids(queue) == ["hard_a", "hard_b"]


def test_scores_and_reasons(run):
    queue = query(run, Query(3, device="cpu"))
    inside = disc(1, 0)[..., 0].mean()
    mean = inside * confidence_of(125) + (1 - inside) * confidence_of(105)
    first, _, third = queue.choices
    assert first.score == pytest.approx(mean, abs=1e-4)
    assert first.reason == f"mean confidence {first.score:.4g}, lowest of 7"
    assert third.reason == f"mean confidence {third.score:.4g}, 3rd lowest of 7"


def test_the_history_is_asked_without_the_network(tmp_path):
    run = write_run(tmp_path, EASY | LABELED, labeled=list(LABELED))
    write_history(run, {"easy_3": 512, "easy_1": 256, "labeled_a": 1024})
    run.best_file.unlink()
    queue = query(run.path, Query(2, "consistency"))
    # Half of the pixels of easy_3 disagree with the epoch before, a quarter of those of easy_1.
    assert [(c.id, c.score) for c in queue.choices] == [("easy_3", 0.5), ("easy_1", 0.75)]


def test_coreset_starts_from_the_labeled_images(tmp_path):
    pictures = {f"grey_{value}": disc(value, value) for value in (10, 60, 100, 110, 250)}
    run = write_run(tmp_path, pictures | {"labeled": disc(0, 0)}, labeled=["labeled"])
    queue = query(run.path, Query(3, "coreset", device="cpu"))
    # The features are the mean colour: on the grey line, 250 is farthest from 0, then 110 (110
    # from 0, 140 from 250), then 60 (50 from 110; 100 has 10, and 10 has 10).
    assert ids(queue) == ["grey_250", "grey_110", "grey_60"]
    unit = np.sqrt(((1 / (255 * np.array([0.229, 0.224, 0.225]))) ** 2).sum())
    expected = [250 * unit, 110 * unit, 50 * unit]
    assert [choice.score for choice in queue.choices] == pytest.approx(expected, rel=1e-4)


def test_coreset_keeps_away_from_rejected_images(tmp_path):
    pictures = {f"grey_{value}": disc(value, value) for value in (100, 240, 250)}
    run = write_run(tmp_path, pictures | {"labeled": disc(0, 0)}, labeled=["labeled"])
    (tmp_path / "decisions.csv").write_text("case,decision\ngrey_240,reject\n")
    asked = Query(2, "coreset", decisions=tmp_path / "decisions.csv", device="cpu")
    # 240 was rejected and comes first; then 250 is only 10 away from it, 100 is 100 from 0.
    assert ids(query(run.path, asked)) == ["grey_240", "grey_100"]


def test_diverse_does_not_ask_for_copies(tmp_path):
    copies = {f"copy_{number}": disc(125, 105) for number in range(4)}
    others = {"other_a": disc(150, 60), "other_b": disc(80, 70)}
    pictures = copies | others | EASY | LABELED
    run = write_run(tmp_path, pictures, labeled=list(LABELED)).path
    assert ids(query(run, Query(3, device="cpu"))) == ["copy_0", "copy_1", "copy_2"]
    # Twelve candidates would hold everything, so the easy images must not be farther: take 2 of 8.
    queue = query(run, Query(2, diverse=True, device="cpu"))
    first, second = ids(queue)
    assert first == "copy_0"
    mean = {name: pixels.mean() for name, pixels in pictures.items()}
    confidence = {
        name: np.mean([confidence_of(value) for value in pixels[..., 0].ravel()])
        for name, pixels in pictures.items()
        if name not in LABELED
    }
    best_eight = sorted(confidence, key=confidence.get)[:8]
    assert second == max(best_eight, key=lambda name: abs(mean[name] - mean["copy_0"]))
    assert queue.choices[0].reason.endswith("lowest of 11; chosen for variety")


def test_random_depends_on_the_seed(run):
    orders = {tuple(ids(query(run, Query(7, "random", seed=seed)))) for seed in (0, 0, 1)}
    assert len(orders) == 2
    assert all(sorted(order) == sorted(EASY | HARD) for order in orders)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_decisions_come_before_scores(run, tmp_path, kind):
    decided = {"easy_0": "edit", "easy_4": "reject", "easy_2": "reject", "hard_a": "accept"}
    rows = [{"case": case, "decision": decision, "note": ""} for case, decision in decided.items()]
    rows.append({"case": "easy_1", "decision": "", "note": "a hair"})
    rows.append({"case": "easy_3", "decision": "corrected", "note": ""})
    path = tmp_path / f"decisions.{kind}"
    if kind == "json":
        path.write_text(json.dumps({"format": "segconf decisions 1", "decisions": rows}))
    else:
        lines = [f"{row['case']},x.png,{row['decision']},{row['note']}" for row in rows]
        path.write_text("\r\n".join(["case,file,decision,note", *lines]), encoding="utf-8-sig")
    queue = query(run, Query(5, decisions=path, device="cpu"))
    # Of the rejected, easy_2 (235 on 7) is less confident than easy_4 (245 on 9): by its disc.
    assert grey_of(245) > grey_of(235)
    scores = {choice.id: choice.score for choice in queue.choices}
    rejected = sorted(["easy_2", "easy_4"], key=scores.get)
    assert ids(queue)[:4] == [*rejected, "easy_0", "hard_b"]
    assert not {"hard_a", "easy_3"} & set(ids(queue))
    assert queue.choices[0].reason.startswith("rejected in review; mean confidence 0.9")
    assert queue.choices[2].reason.startswith("edited in review; ")
    assert queue.choices[3].reason.endswith("lowest of 5")
    assert queue.notes == ("1 accepted images are left out", "1 corrected images are left out")


def test_the_size_of_a_picture_does_not_matter(run, tmp_path):
    pixels = disc(150, 60)
    for times in (1, 2, 5):
        large = pixels.repeat(times, axis=0).repeat(times, axis=1)
        write_picture(tmp_path / "pool" / f"p{times}" / "deep.png", large)
    for strategy in ("confidence", "boundary-confidence", "entropy", "expected-dice"):
        queue = query(run, Query(3, strategy, pool=tmp_path / "pool", device="cpu"))
        assert sorted(ids(queue)) == ["p1/deep", "p2/deep", "p5/deep"]
        scores = [choice.score for choice in queue.choices]
        assert max(scores) < 1.1 * min(scores)  # 25 times the pixels; resizing blurs edges


def test_a_pool_with_masks_is_asked_for_the_rest(run, tmp_path):
    for name in ("new", "done"):
        write_picture(tmp_path / "pool/images" / f"{name}.png", disc(120, 110))
    write_picture(tmp_path / "pool/masks/done.png", disc(1, 0)[..., 0])
    assert ids(query(run, Query(1, pool=tmp_path / "pool", device="cpu"))) == ["new"]


def test_decisions_about_dicom_images_are_known_by_their_content(run, tmp_path):
    """They are predicted under their UIDs, and called like their files in a pool."""
    for name in ("done", "new"):
        photograph(tmp_path / "pool" / f"{name}.dcm", disc(120, 110))
    sha256 = hashlib.sha256((tmp_path / "pool/done.dcm").read_bytes()).hexdigest()
    table = f"case,decision,image_sha256\n1.2.3,accept,{sha256}\n"
    (tmp_path / "decided.csv").write_text(table)
    options = {"pool": tmp_path / "pool", "decisions": tmp_path / "decided.csv", "device": "cpu"}
    assert ids(query(run, Query(1, **options))) == ["new"]


def test_the_list_and_its_contact_sheet(run, tmp_path):
    queue = query(run, Query(4, device="cpu"))
    write_queue(queue, tmp_path / "lists" / "next.csv")
    with (tmp_path / "lists" / "next.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["rank", "id", "group", "score", "reason", "run"]
    assert [row["id"] for row in rows] == ids(queue)
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4"]
    assert {row["run"] for row in rows} == {"../run"}
    write_contact_sheet(queue, tmp_path / "next.png")
    with PIL.Image.open(tmp_path / "next.png") as sheet:
        pixels = np.asarray(sheet.convert("RGB")).astype(int)
    # Four tiles of 240 pixels, 12 apart. In the corner of each one is the ground of its image,
    # tinted where the confidence is low: hard_a has a ground of 105 with little confidence.
    corners = [pixels[14, 12 + number * 252 + 238] for number in range(4)]
    assert np.ptp(corners[0]) > 10  # a colour
    assert corners[2].tolist() == EASY[ids(queue)[2]][0, 0].tolist()


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"budget": 0}, r"budget = 0: expected a number from 1"),
        ({"budget": 8}, r"budget = 8: only 7 images can be asked for. Give a number up to 7"),
        ({"budget": 1, "strategy": "coreset", "diverse": True}, "coreset spreads its choice"),
        ({"budget": 1, "strategy": "consistency", "pool": "x"}, "not a pool"),
        ({"budget": 1, "pool": "nowhere"}, "nowhere: no such folder"),
        ({"budget": 1, "pool": "empty"}, "no image found"),
        ({"budget": 1, "pool": "masked"}, "every image has a mask"),
        ({"budget": 1, "strategy": "consistency"}, "no epoch was finished"),
        ({"budget": 1, "decisions": "none.csv"}, "none.csv: no such file"),
        ({"budget": 1, "decisions": "ids.csv"}, "no column called decision"),
        ({"budget": 1, "decisions": "list.json"}, 'expected "format": "segconf corrections 1"'),
        ({"budget": 1, "decisions": "half.json"}, "half.json: no decisions of a review"),
        ({"budget": 1, "decisions": "odd.csv"}, "easy_0 has the decision 'maybe'"),
        ({"budget": 1, "decisions": "other.csv"}, "none of the 1 decided images is among the 7"),
    ],
)
def test_mistakes(run, tmp_path, monkeypatch, asked, named):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    write_picture(tmp_path / "masked/images/a.png", disc(1, 0))
    write_picture(tmp_path / "masked/masks/a.png", disc(1, 0)[..., 0])
    texts = {
        "ids.csv": "case\neasy_0\n",
        "list.json": '["easy_0"]',
        "half.json": '{"format": "segconf decisions 1", "decisions": [{"decision": "edit"}]}',
        "odd.csv": "case,decision\neasy_0,maybe\n",
        "other.csv": "case,decision\nelsewhere,reject\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    paths = {name: tmp_path / asked[name] for name in ("pool", "decisions") if name in asked}
    with pytest.raises((ConfigError, DataError)) as refusal:
        query(run, Query(**asked | paths, device="cpu"))
    assert named in str(refusal.value)


def test_a_run_without_a_history_of_unlabeled_images(tmp_path):
    run = write_run(tmp_path, EASY | LABELED, labeled=list(LABELED), training__method="softmax")
    with pytest.raises(ConfigError, match=r"strategy = consistency: .*softmax keeps no history"):
        query(run.path, Query(1, "consistency"))


def test_all_images_are_labeled(tmp_path):
    run = write_run(tmp_path, LABELED, labeled=list(LABELED))
    with pytest.raises(DataError, match=r"no unlabeled images in this run. .*pool"):
        query(run.path, Query(1))
    assert isinstance(run, RunFolder)
