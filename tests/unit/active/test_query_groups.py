"""Queries where several images belong together: whole groups are offered, never a part of one."""

import csv

import nibabel
import numpy as np
import pytest

from segconf.active.query import Query, query
from segconf.active.queue import write_contact_sheet, write_queue
from segconf.active.strategies import image_score
from segconf.errors import ConfigError
from segconf.training.labels import label
from tests.active_runs import GreyNetwork, confidence_of, disc, write_history, write_run
from tests.training_runs import settings, use_network

PATIENTS = {
    "sure/a": disc(250, 5),
    "sure/b": disc(245, 10),
    "mixed/a": disc(250, 5),
    "mixed/b": disc(125, 105),
    "mixed/c": disc(240, 15),
    "unsure/a": disc(140, 90),
    "unsure/b": disc(135, 95),
}
LABELED = {"known/a": disc(255, 0), "known/b": disc(252, 3)}


@pytest.fixture(autouse=True)
def _grey(monkeypatch):
    use_network(monkeypatch, GreyNetwork)


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path, PATIENTS | LABELED, labeled=list(LABELED)).path


def members(name):
    return [own for own in PATIENTS if own.startswith(f"{name}/")]


def mean_confidence(name):
    """Of the images of a patient, pixel by pixel."""
    return np.mean(
        [
            np.mean([confidence_of(v) for v in PATIENTS[own][..., 0].ravel()])
            for own in members(name)
        ]
    )


def test_a_patient_is_offered_whole_and_ranked_by_the_mean_of_its_images(run, tmp_path):
    queue = query(run, Query(2, device="cpu"))
    assert [choice.id for choice in queue.choices] == ["unsure", "mixed"]
    for choice in queue.choices:
        assert choice.score == pytest.approx(mean_confidence(choice.id), abs=1e-4)
    assert queue.choices[1].reason.endswith("2nd lowest of 3")
    assert queue.notes == ("the budget counts groups (volumes, patients), which are never cut",)
    write_queue(queue, tmp_path / "next.csv")
    with (tmp_path / "next.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [*members("unsure"), *members("mixed")]
    assert [row["rank"] for row in rows] == ["1", "1", "2", "2", "2"]
    assert [row["group"] for row in rows] == ["unsure"] * 2 + ["mixed"] * 3
    write_contact_sheet(queue, tmp_path / "next.png")
    with pytest.raises(ConfigError, match="budget = 4: only 3 groups can be asked for"):
        query(run, Query(4, device="cpu"))


def test_the_next_training_labels_whole_patients(run, tmp_path):
    write_queue(query(run, Query(1, device="cpu")), tmp_path / "next.csv")
    config = settings(data__labels_from_query=str(tmp_path / "next.csv"), model__encoder="resnet18")
    from segconf.data.datasets.dataset import find_cases

    _, split = label(find_cases(str(tmp_path / "data")), config)
    assert [case.id for case in split.labeled] == [*LABELED, *members("unsure")]
    assert (split.unit, split.labels) == ("groups", 2)


def test_the_most_urgent_decision_counts_for_the_group(run, tmp_path):
    decisions = tmp_path / "decisions.csv"
    lines = ["sure/b,reject", "unsure/a,accept", "unsure/b,accept", "mixed/a,accept"]
    decisions.write_text("\n".join(["case,decision", *lines]))
    queue = query(run, Query(2, decisions=decisions, device="cpu"))
    assert [choice.id for choice in queue.choices] == ["sure", "mixed"]
    chosen = [[queue.pool.cases[n].id for n in choice.numbers] for choice in queue.choices]
    assert chosen == [members("sure"), ["mixed/b", "mixed/c"]]  # what was accepted is done
    assert queue.notes[0] == "3 accepted images are left out"


def test_strategies_without_a_prediction_work_by_group(tmp_path):
    run = write_run(tmp_path, PATIENTS | LABELED, labeled=list(LABELED))
    write_history(run, {"mixed/b": 1024, "sure/a": 512, "sure/b": 512})
    queue = query(run.path, Query(3, "consistency", device="cpu"))
    # All, half and half of the pixels change: 1 - 1 / 3, 1 - 1 / 2.
    assert [(c.id, c.score) for c in queue.choices] == [
        ("sure", 0.5),
        ("mixed", pytest.approx(2 / 3)),
        ("unsure", 1.0),
    ]
    orders = {
        tuple(c.id for c in query(run.path, Query(3, "random", seed=seed)).choices)
        for seed in range(6)
    }
    assert len(orders) > 1
    # On the grey line the mean of a patient is what is far from the labeled ones.
    greys = {
        name: np.mean([PATIENTS[own].mean() for own in members(name)])
        for name in ("sure", "mixed", "unsure")
    }
    labeled = np.mean([pixels.mean() for pixels in LABELED.values()])
    farthest = max(greys, key=lambda name: abs(greys[name] - labeled))
    assert query(run.path, Query(1, "coreset", device="cpu")).choices[0].id == farthest
    assert len(query(run.path, Query(2, diverse=True, device="cpu")).choices) == 2


def test_a_volume_has_the_score_of_all_its_slices(run, tmp_path):
    pool = tmp_path / "pool"
    pool.mkdir()
    for name, greys in {"v0": (250, 5, 250), "v1": (125, 105, 130)}.items():
        slices = [disc(value, 255 - value)[..., 0] for value in greys]
        voxels = np.stack([plane.T for plane in slices], axis=-1).astype(np.float32)
        nibabel.save(nibabel.Nifti1Image(voxels, np.eye(4)), pool / f"{name}.nii.gz")
    queue = query(run, Query(2, pool=pool, device="cpu"))
    assert sorted(choice.id for choice in queue.choices) == ["v0", "v1"]
    assert [len(choice.numbers) for choice in queue.choices] == [3, 3]
    logits = np.random.default_rng(0).normal(size=(3, 2, 8, 8)).astype(np.float32)
    whole = image_score("confidence", logits)
    assert whole == pytest.approx(np.mean([image_score("confidence", one) for one in logits]))
    with pytest.raises(ConfigError, match="only 2 groups"):
        query(run, Query(3, pool=pool, device="cpu"))
