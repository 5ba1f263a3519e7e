"""Labels beyond the journey: query, active learning, surrogates, other images, benchmark."""

import csv
import json
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from segconf.active.query import Query, query
from segconf.checkpoints.weight_files import kept_snapshots
from segconf.config.loading import load_config
from segconf.inference.model import load_model
from segconf.runs.run_folder import RunFolder
from segconf.training.train import train
from tests.benchmark_steps import launch_here
from tests.cifar_records import files_of, write
from tests.conftest import COLOURS, coloured, write_classes
from tests.references import metrics as reference

SETTINGS = (
    *("data.task=classification", "data.size=[8, 8]"),
    *("model.encoder=preact_resnet8", "model.encoder_weights=none"),
    *("training.batch_labeled=6", "training.batch_unlabeled=6"),
    *("training.learning_rate=0.01", "training.device=cpu"),
)
CHOSEN = [part for one in SETTINGS for part in ("--set", one)]


def table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def colours(tmp_path_factory):
    """Six training images of each colour; some of them show another colour than their label."""
    root = tmp_path_factory.mktemp("labels")
    data = write_classes(root / "colours", {"train": 6, "val": 3, "test": 3})
    for name, shown in (("blue", "red"), ("green", "blue")):
        Image.fromarray(coloured([5, len(name)], shown)).save(data / "train" / name / "004.png")
    return data


@pytest.fixture(scope="module")
def run(colours):
    """Three epochs of consistency on 9 of 18 labels, with a snapshot after each."""
    folder = colours.parent / "run"
    flags = {"training.epochs": 3, "training.snapshots": 3, "data.labeled": 9}
    train(load_config(overrides=SETTINGS, flags=flags), dataset=str(colours), folder=folder)
    return folder


def logits_of(model, paths):
    """Logits (N, K) of pictures, one at a time."""
    pixels = [np.asarray(Image.open(path))[None] for path in paths]
    return np.concatenate([model.grid_logits(one)[:, :, 0, 0] for one in pixels])


def test_query_ranks_unlabeled_images_by_what_the_network_says(run, colours, segconf, tmp_path):
    model = load_model(run, device="cpu", batch_size=1)
    names = RunFolder(run).data().ids["unlabeled"]
    paths = [colours / "train" / f"{name}.png" for name in names]
    probabilities = [reference.softmax(one) for one in logits_of(model, paths).tolist()]
    entropies = [-sum(p * np.log(p) for p in one) for one in probabilities]
    for strategy, scores, sign in (
        ("confidence", [max(one) for one in probabilities], 1),
        ("entropy", entropies, -1),
    ):
        out = tmp_path / f"{strategy}.csv"
        arguments = ("--budget", "4", "--strategy", strategy, "--out", out, "--device", "cpu")
        code, text, error = segconf("query", run, *arguments)
        assert code == 0, error
        order = sorted(range(len(names)), key=lambda row: sign * scores[row])
        rows = table(out)
        assert [row["id"] for row in rows] == [names[row] for row in order[:4]]
        found = [float(row["score"]) for row in rows]
        assert found == pytest.approx([scores[row] for row in order[:4]], rel=1e-4)
        assert rows[0]["reason"].startswith(f"{strategy} ")
        assert "When these images have labels" in text
        with Image.open(out.with_suffix(".png")) as sheet:
            assert sheet.width > 4 * 240


def test_coreset_takes_the_image_that_is_farthest_from_all_labeled_ones(run, colours):
    model = load_model(run, device="cpu", batch_size=1)
    ids = RunFolder(run).data().ids

    def features(name):
        pixels = np.asarray(Image.open(colours / "train" / f"{name}.png"))[None]
        maps = model.checkpoint.model.encoder(model.normalize(pixels))
        return maps[-1].mean(dim=(2, 3))[0].detach().numpy()

    labeled = [features(name) for name in ids["labeled"]]
    nearest = {
        name: min(np.linalg.norm(features(name) - one) for one in labeled)
        for name in ids["unlabeled"]
    }
    queue = query(run, Query(1, "coreset", device="cpu"))
    assert queue.choices[0].id == max(nearest, key=nearest.get)
    assert queue.choices[0].score == pytest.approx(max(nearest.values()), rel=1e-4)


def test_a_pool_leaves_out_what_the_table_of_labels_knows(run, tmp_path):
    (tmp_path / "images/a").mkdir(parents=True)
    for number in range(3):
        Image.fromarray(coloured(number, "red")).save(tmp_path / f"images/a/{number}.png")
    (tmp_path / "labels.csv").write_text("image,label\na/1,red\na/2,\n")
    queue = query(run, Query(2, "confidence", pool=tmp_path, device="cpu"))
    assert sorted(choice.id for choice in queue.choices) == ["a/0", "a/2"]


def test_active_learning_reveals_labels(colours, segconf, tmp_path):
    protocol = ("--rounds", "1", "--budget", "3", "--start", "6", "--seeds", "1")
    strategies = ("--strategies", "confidence,random")
    epochs = ("--set", "training.epochs=2")
    arguments = ("active", colours, *protocol, *CHOSEN, *epochs, "--out", "out")
    code, text, error = segconf(*arguments, *strategies)
    assert code == 0, error
    assert "test accuracy" in text
    assert "mIoU" not in text
    rows = table(tmp_path / "out/active.csv")
    assert [(row["strategy"], row["labels"]) for row in rows] == [
        (strategy, labels) for strategy in ("confidence", "random") for labels in ("6", "9")
    ]
    last = tmp_path / "out/seed0/confidence/round1"
    metrics = json.loads((last / "evaluation/test/metrics.json").read_text())
    for name in ("accuracy", "aurc"):
        assert float(rows[1][name]) == metrics["metrics"]["all"]["strict"][name]
    before = RunFolder(tmp_path / "out/seed0/start").data().ids["labeled"]
    asked = [row["id"] for row in table(last.with_suffix(".csv"))]
    assert set(RunFolder(last).data().ids["labeled"]) == {*before, *asked}
    assert not set(before) & set(asked)
    again = segconf(*arguments, *strategies)
    assert again[1] == text


def test_strategies_of_masks_are_refused(run, colours, segconf):
    for arguments in (
        ("query", run, "--budget", "1", "--strategy", "expected-dice"),
        ("active", colours, "--strategies", "boundary-confidence", *CHOSEN),
    ):
        code, _, error = segconf(*arguments)
        assert code == 2
        assert "looks at masks, but here labels are predicted" in error


def test_unsure_labels_are_asked_for_first_and_decided_ones_no_more(run, segconf, tmp_path):
    (tmp_path / "images").mkdir()
    for number in range(5):
        Image.fromarray(coloured(number, "red")).save(tmp_path / f"images/{number}.png")
    (tmp_path / "decisions.csv").write_text(
        "case,decision,label\n0,accept,red\n1,edit,\n2,reject,\n3,corrected,blue\n"
    )
    decided = ("--pool", "images", "--decisions", "decisions.csv", "--device", "cpu")
    code, _, error = segconf("query", run, "--budget", "3", *decided)
    assert code == 0, error
    rows = table(tmp_path / "next.csv")
    assert [row["id"] for row in rows] == ["2", "1", "4"]
    words = [row["reason"].partition(";")[0] for row in rows[:2]]
    assert words == ["rejected in review", "unsure in review"]


def test_there_are_no_overlays_to_export(run, segconf, tmp_path):
    (tmp_path / "images").mkdir()
    Image.fromarray(coloured(1, "red")).save(tmp_path / "images/a.png")
    assert segconf("predict", "images", "--out", "maps", "--checkpoint", run)[0] == 0
    code, _, error = segconf("export", "maps", "--out", "pictures")
    assert code == 2
    assert "holds labels, without overlays" in " ".join(error.split())


def test_surrogates_follow_from_the_snapshots(run, colours, segconf, tmp_path):
    """Consistency, correctness and label frequencies by slow loops over all training images."""
    code, _, error = segconf("surrogates", run, "--out", "out", "--device", "cpu")
    assert code == 0, error
    rows = table(tmp_path / "out/surrogates.csv")
    found = {(int(row["epoch"]), row["surrogate"]): float(row["aurc"]) for row in rows}
    paths = sorted((colours / "train").glob("*/*.png"))
    truth = [COLOURS.index(path.parent.name) for path in paths]
    model = load_model(run, device="cpu", batch_size=1)
    said = []  # class by snapshot and image
    for epoch, file in kept_snapshots(run).items():
        model.checkpoint.model.load_state_dict(load_file(file))
        said.append(logits_of(model, paths).argmax(axis=1).tolist())
        values = {"consistency": [], "correctness": [], "L-count": [], "L-margin": []}
        for image, label in enumerate(truth):
            own = [predictions[image] for predictions in said]
            counts = sorted((own.count(number) for number in range(3)), reverse=True)
            values["consistency"].append(sum(a == b for a, b in pairwise(own)))
            values["correctness"].append(own.count(label))
            values["L-count"].append(counts[0])
            values["L-margin"].append(counts[0] - counts[1])
        correct = [a == b for a, b in zip(said[-1], truth, strict=True)]
        for name, scores in values.items():
            expected = reference.aurc(scores, correct)
            assert found[epoch, name] == pytest.approx(expected, abs=1e-9), (epoch, name)


def chessboards(folder, count=6, size=8):
    """Pictures that no colour explains."""
    folder.mkdir(parents=True)
    board = np.indices((size, size)).sum(axis=0) % 2 * 255
    for number in range(count):
        shifted = np.roll(board, number, axis=0).astype(np.uint8)
        Image.fromarray(shifted[..., None].repeat(3, axis=2)).save(folder / f"{number}.png")
    return folder


def separation(own, others):
    """AUROC and detection error of a score that is high for others, pair by pair."""
    pairs = [(a < b) + (a == b) / 2 for a in own for b in others]
    errors = [
        (sum(a > limit for a in own) / len(own) + sum(b <= limit for b in others) / len(others)) / 2
        for limit in (-np.inf, *own, *others)
    ]
    return sum(pairs) / len(pairs), min(errors)


def test_other_images_are_told_by_maximum_softmax_and_by_features(run, colours, segconf, tmp_path):
    boards = chessboards(tmp_path / "boards")
    code, text, error = segconf("evaluate", run, "--ood", boards, "--device", "cpu", "--out", "out")
    assert code == 0, error
    found = json.loads((tmp_path / "out/ood.json").read_text())
    assert (found["images"], found["others"]) == (9, 6)
    model = load_model(run, device="cpu", batch_size=1)
    scores = [
        [1 - max(reference.softmax(one)) for one in logits_of(model, sorted(paths)).tolist()]
        for paths in ((colours / "test").glob("*/*.png"), boards.glob("*.png"))
    ]
    expected = separation(*scores)
    measured = found["metrics"]["confidence"]
    assert (measured["auroc"], measured["detection_error"]) == pytest.approx(expected)
    assert found["metrics"]["features"]["auroc"] == 1
    assert "features" in text
    code, _, error = segconf("predict", boards, "--out", "maps", "--checkpoint", run)
    assert code == 0, error
    for row in table(tmp_path / "maps/predictions.csv"):
        assert row["flags"].startswith("out of distribution")
        assert float(row["ood_score"]) > found["threshold"]


def test_records_are_compared_with_those_of_another_data_set(segconf, tmp_path):
    for version in (10, 100):
        write(tmp_path / f"data/cifar{version}", files_of(version)[0])
    flags = ("--epochs", "1", "--device", "cpu", "--out", "run", "--set")
    settings = ("model.encoder=preact_resnet8", "--set", "model.encoder_weights=none")
    code, _, error = segconf("train", "cifar10", *flags, *settings)
    assert code == 0, error
    code, _, error = segconf("evaluate", "run", "--ood", "cifar100", "--device", "cpu")
    assert code == 0, error
    found = json.loads((tmp_path / "run/evaluation/test/ood.json").read_text())
    assert (found["images"], found["others"]) == (4, 4)
    assert set(found["metrics"]) == {"features", "confidence"}
    model = load_model(tmp_path / "run", device="cpu", batch_size=1)
    scores = []
    for version, name in ((10, "test_batch"), (100, "test")):
        images = [one for id_, one in files_of(version)[1].items() if id_.startswith(f"{name}/")]
        logits = [model.grid_logits(one[None])[0, :, 0, 0].tolist() for one in images]
        scores.append([1 - max(reference.softmax(one)) for one in logits])
    assert found["metrics"]["confidence"]["auroc"] == pytest.approx(separation(*scores)[0])


@pytest.mark.parametrize("processes", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_benchmark_of_a_folder_of_classes(colours, segconf, tmp_path, monkeypatch, processes):
    launched = None if processes else launch_here(monkeypatch)
    (tmp_path / "protocol.yaml").write_text(
        "methods: {softmax: {settings: {training.epochs: 2}}, "
        "consistency: {settings: {training.epochs: 1}}}"
    )
    asked = ("--labeled", "9", "--methods", "softmax,consistency", "--protocol", "protocol.yaml")
    # Neither the task nor the classes nor the grid are given: the data set decides them.
    settings = [part for one in SETTINGS[2:] for part in ("--set", one)]
    arguments = ("benchmark", colours, *asked, *settings, "--out", "out", "--paper")
    code, text, error = segconf(*arguments)
    assert code == 0, error
    assert "accuracy" in text
    assert "mIoU" not in text
    assert "The paper has no numbers for 9 labels" in error
    rows = {row["row"]: row for row in table(tmp_path / "out/tables/9-labels/table.csv")}
    assert set(rows) == {"softmax (9 labels)", "consistency (9 labels)"}
    folder = tmp_path / "out/consistency-9-seed0"
    metrics = json.loads((folder / "evaluation/test/metrics.json").read_text())
    for name in ("accuracy", "aurc", "eaurc", "augrc", "fpr95", "ece", "nll", "brier"):
        expected = metrics["metrics"]["all"]["strict"][name]
        shown = rows["consistency (9 labels)"].get(name)
        assert shown is None or float(shown) == pytest.approx(expected)
    again = segconf(*arguments)
    assert (again[0], again[1]) == (0, text)
    if launched is not None:
        command = [sys.executable, "-m", "segconf_cli"]
        steps = [[*command, step] for step in ("train", "evaluate")]
        assert [line[:4] for line in launched] == 2 * steps  # and none again


def test_published_numbers_of_labels_name_their_data_set(run):
    from segconf.comparison.compare import compare_evaluated, read_evaluation
    from segconf.errors import ConfigError
    from segconf.evaluation.evaluate import EvaluationOptions, evaluate

    evaluate(run, EvaluationOptions(device="cpu"))
    own = read_evaluation(run, "test")
    with pytest.raises(ConfigError, match="no numbers for labels of 3 classes"):
        compare_evaluated([own], split="test", paper=2500)
    ten = replace(own, about={**own.about, "classes": [{}] * 10})
    rows = {row.name: row for row in compare_evaluated([ten], split="test", paper=2500).rows}
    ours = rows["consistency (2500 labels, CIFAR-10, published)"].values
    assert (ours["accuracy"], ours["aurc"], ours["ece"]) == pytest.approx((0.755, 0.0815, 0.0577))
    with pytest.raises(ConfigError, match="numbers for 2500, 5000, 10000, 50000"):
        compare_evaluated([ten], split="test", paper=250)


def test_the_sheet_shows_the_least_sure_images_first(run, segconf, tmp_path, monkeypatch):
    from segconf.inference import least_sure

    shown = []
    draw = least_sure.contact_sheet
    monkeypatch.setattr(
        least_sure,
        "contact_sheet",
        lambda tiles, scale: shown.extend(tiles) or draw(tiles, scale=scale),
    )
    monkeypatch.setattr(least_sure, "SHOWN", 3)
    (tmp_path / "images").mkdir()
    for number, name in enumerate(COLOURS * 2):
        Image.fromarray(coloured([8, number], name)).save(tmp_path / f"images/{number}.png")
    (tmp_path / "images/broken.png").write_bytes(b"no picture")
    code, text, err = segconf("predict", "images", "--out", "out", "--checkpoint", run)
    assert code == 3
    assert "out/review.html, out/predictions.csv, out/least_sure.png" in text
    assert "segconf review out --serve" in err
    rows = [row for row in table(tmp_path / "out/predictions.csv") if row["label"]]
    rows.sort(key=lambda row: (float(row["confidence"]), row["case"]))
    assert [tile.title for tile in shown] == [row["case"] for row in rows[:3]]
    best = sorted(COLOURS, key=lambda name: -float(rows[0][f"p_{name}"]))
    expected = [f"{name} {float(rows[0][f'p_{name}']):.0%}" for name in best[:2]]
    assert shown[0].words == ", ".join(expected)
    assert np.array_equal(
        shown[0].image,
        np.moveaxis(np.asarray(Image.open(tmp_path / "images" / rows[0]["file"])), -1, 0),
    )
    with Image.open(tmp_path / "out/least_sure.png") as sheet:
        assert sheet.width == 3 * (240 + 12) + 12
