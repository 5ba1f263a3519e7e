"""Two processes on one machine: every image once, the same weights, the loss of one process."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from segconf.data.training_set import Batch, TrainingStep
from segconf.errors import SegconfError, TrainingError
from segconf.history.predictions import PredictionHistory
from segconf.history.probabilities import ProbabilityHistory
from segconf.losses.ranking_terms import total_loss
from segconf.methods.method import LossContext, method_of
from segconf.metrics.streaming import ConfidenceMetrics
from segconf.processes import ProcessGroup, joined
from segconf.training import validation
from segconf.training.history_maps import history_maps
from segconf.training.step import StepOptions, TwoViews, step_terms
from tests.ports import free_ports, meet
from tests.training_runs import (
    Interrupter,
    TinyNetwork,
    contents,
    differences,
    settings,
    train_tiny,
)

ROOT = Path(__file__).resolve().parents[2]
SIZE = (4, 5)
RANKED = ("consistency", "distillation")
OPTIONS = StepOptions(epoch=4, record=True, rank=True, batch_norm_training=True)


def small_network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 2, 1))


def part_of_step(labeled, unlabeled):
    """Some images of a step of 5 labeled and 6 unlabeled ones, with slots numbered from 0."""
    generator = torch.Generator().manual_seed(1)
    augmented, plain = torch.randn(2, 5, 3, *SIZE, generator=generator)
    augmented_masks = torch.randint(0, 2, (5, *SIZE), generator=generator)
    augmented_masks[0, :2] = 255  # ranks with different numbers of pixels that count
    masks = torch.randint(0, 2, (5, *SIZE), generator=generator, dtype=torch.uint8)
    others = torch.randn(6, 3, *SIZE, generator=generator)
    count = len(labeled)
    return TrainingStep(
        augmented[labeled],
        augmented_masks[labeled],
        Batch(torch.arange(count), plain[labeled], masks[labeled]),
        Batch(torch.arange(count, count + len(unlabeled)), others[unlabeled], None),
    )


def loss_and_gradient(group, labeled, unlabeled, method="consistency"):
    """Loss of the part of a rank with some past, and the gradient that the optimizer sees."""
    step = part_of_step(labeled, unlabeled)
    count = len(labeled) + len(unlabeled)
    kind = ProbabilityHistory if method == "distillation" else PredictionHistory
    more = {"classes": 2} if method == "distillation" else {}
    history = kind(count, SIZE, labeled=range(len(labeled)), epochs=9, **more)
    past = torch.randint(
        0, 2, (4, 11, *SIZE), generator=torch.Generator().manual_seed(2), dtype=torch.uint8
    )
    own = [*labeled, *(5 + number for number in unlabeled)]
    masks = torch.cat([step.labeled.masks, torch.zeros(len(unlabeled), *SIZE, dtype=torch.uint8)])
    for epoch in range(4):
        said = past[epoch, own]
        kept = {"probabilities": torch.stack([0.8 - 0.6 * said, 0.2 + 0.6 * said], dim=1)}
        kept = kept if method == "distillation" else {}
        history.record(torch.arange(count), said, epoch=epoch, masks=masks, **kept)
    network = small_network()
    views = TwoViews(network)
    if group.world > 1:
        views = DistributedDataParallel(views)
    config = settings(training__method=method)
    chosen, weights = method_of(config), config.loss
    pairs = torch.Generator().manual_seed(3)
    context = LossContext(weights, history, group, pairs, torch.device("cpu"))
    terms = step_terms(views, step, chosen, OPTIONS, context)
    expected = {"supervised": 1, "correctness": 0.5, "consistency": 0.15}
    if method == "distillation":
        expected["distillation"] = 1
    assert chosen.weights(weights) == expected
    loss = total_loss(terms, chosen.weights(weights))
    (loss * group.world).backward()
    return loss.item(), [parameter.grad for parameter in network.parameters()]


def one_rank(rank, dataset, out):
    """Everything that needs two processes, in one go: starting them takes seconds."""
    # A port per group: the next one must not meet the store of the last, which may still close.
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2"}
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
    torch.set_num_threads(1)
    meet(rank, out / "port1")
    with joined(torch.device("cpu")) as group:
        split = ([0, 1, 2], [0, 1]) if rank == 0 else ([3, 4], [2, 3, 4, 5])
        for method in RANKED:
            torch.save(loss_and_gradient(group, *split, method), out / f"{method}{rank}.pt")
        torch.save(group.collect(f"rank {rank}"), out / f"collected{rank}.pt")
        failure = failing_on_first(group)
        torch.save(failure, out / f"failure{rank}.pt")
    seen = []
    original = validation.ConfidenceMetrics.update

    def counting(self, logits, masks):
        seen.append(len(masks))
        original(self, logits, masks)

    validation.ConfidenceMetrics.update = counting
    kept = []

    def network():
        kept.append(TinyNetwork())
        return kept[-1]

    meet(rank, out / "port2")
    train_tiny(dataset, out / "run", network=network)
    # The first network is trained; another one is built to load the best weights at the end.
    torch.save((sum(seen), kept[0].state_dict()), out / f"trained{rank}.pt")
    interrupter = Interrupter(2, 1) if rank == 0 else None
    meet(rank, out / "port3")
    try:
        train_tiny(dataset, out / "interrupted", listener=interrupter)
    except (KeyboardInterrupt, RuntimeError) as error:
        (out / f"interrupted{rank}.txt").write_text(type(error).__name__)
    meet(rank, out / "port4")
    train_tiny(dataset, out / "interrupted", resume=True)
    tasks = Path("/proc/self/task").glob("*/comm")
    (out / f"threads{rank}.txt").write_text("\n".join(task.read_text().strip() for task in tasks))


def failing_on_first(group):
    def work():
        raise SegconfError("disk full")

    try:
        group.on_first(work)
    except SegconfError as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    from tests.conftest import write_folder

    out = tmp_path_factory.mktemp("two")
    root = write_folder(out / "discs", 11)
    write_folder(root / "val", 5, first=100)
    write_folder(root / "test", 1, first=200)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEGCONF_CACHE", str(out / "cache"))
        patch.setenv("OMP_NUM_THREADS", "1")
        mp.spawn(one_rank, (root, out), nprocs=2)
    return out


@pytest.mark.parametrize("method", RANKED)
def test_the_loss_of_a_step_is_that_of_one_process(two_ranks, method):
    whole = ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5])
    alone, gradient = loss_and_gradient(ProcessGroup(), *whole, method)
    for rank in (0, 1):
        loss, averaged = torch.load(two_ranks / f"{method}{rank}.pt")
        assert loss == pytest.approx(alone, rel=1e-5)
        for ours, expected in zip(averaged, gradient, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_values_travel_in_order_and_failures_reach_every_rank(two_ranks):
    for rank in (0, 1):
        assert torch.load(two_ranks / f"collected{rank}.pt") == ["rank 0", "rank 1"]
        assert torch.load(two_ranks / f"failure{rank}.pt") == "disk full"


def test_weights_are_identical_on_both_ranks(two_ranks):
    (_, first), (_, second) = (torch.load(two_ranks / f"trained{rank}.pt") for rank in (0, 1))
    saved = torch.load(two_ranks / "run/last.ckpt", weights_only=True)["model"]
    for name, value in saved.items():
        assert torch.equal(first[name], value), name
        assert torch.equal(second[name], value), name


def test_history_and_metrics_cover_every_image_once(two_ranks):
    split = json.loads((two_ranks / "run/split.json").read_text())
    records = []
    for rank in (0, 1):
        marker = two_ranks / f"run/history/rank{rank}/epoch-0004.json"
        records.append(json.loads(marker.read_text())["facts"]["records"])
    assert sorted(map(len, records)) == [5, 6]
    assert records[0] + records[1] == [4] * 11
    count, maps = history_maps(two_ranks / "run")
    found = {image.id: image for image in maps}
    assert count == 11
    assert sorted(found) == sorted(split["labeled"] + split["unlabeled"])
    labeled = [id_ for id_, image in found.items() if image.correctness is not None]
    assert sorted(labeled) == sorted(split["labeled"])
    # 5 validation images, raw and averaged weights, 4 epochs.
    seen = [torch.load(two_ranks / f"trained{rank}.pt")[0] for rank in (0, 1)]
    assert sum(seen) == 5 * 2 * 4
    assert min(seen) == 2 * 2 * 4


def test_the_scores_are_those_of_all_validation_images(two_ranks):
    with (two_ranks / "run/epochs.csv").open() as file:
        last = list(csv.DictReader(file))[-1]
    model = TinyNetwork().eval()
    model.load_state_dict(torch.load(two_ranks / "run/last.ckpt", weights_only=True)["model"])
    metrics = ConfidenceMetrics(num_classes=2)
    for path in sorted((two_ranks / "discs/val/images").iterdir()):
        from PIL import Image

        pixels = np.asarray(Image.open(path)) / 255
        mask = np.asarray(Image.open(two_ranks / "discs/val/masks" / path.name)) > 0
        normalized = (pixels - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
        with torch.no_grad():
            logits = model(torch.tensor(normalized, dtype=torch.float32).permute(2, 0, 1)[None])
        metrics.update(logits, torch.from_numpy(mask[None].astype(np.uint8)))
    assert float(last["miou"]) == pytest.approx(metrics.compute()["miou"], abs=1e-3)
    assert float(last["nll"]) == pytest.approx(metrics.compute()["nll"], rel=1e-4)


def test_an_interrupted_run_of_two_ranks_is_continued_exactly(two_ranks):
    assert (two_ranks / "interrupted0.txt").read_text() == "KeyboardInterrupt"
    one, other = contents(two_ranks / "run"), contents(two_ranks / "interrupted")
    assert differences(one, other) == []


@pytest.mark.skipif(sys.platform != "linux", reason="/proc names the threads")
def test_no_thread_of_a_group_outlives_the_training(two_ranks):
    for rank in (0, 1):
        threads = (two_ranks / f"threads{rank}.txt").read_text().split("\n")
        assert threads
        assert [name for name in threads if "gloo" in name or "tcpstore" in name] == []


def test_another_number_of_processes_is_refused(two_ranks):
    with pytest.raises(TrainingError, match="was trained by 2 processes, now there are 1"):
        train_tiny(two_ranks / "discs", two_ranks / "run", resume=True, training__epochs=5)


@pytest.mark.slow
def test_torchrun_trains_and_resumes(tmp_path, folder_dataset):
    def torchrun(*arguments):
        return subprocess.run(
            [
                *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
                *("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_ports(1)[0]}"),
                *("-m", "segconf_cli", "train", *arguments),
            ],
            env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'cli'}"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    settings = {
        "data.size": "[64,64]",
        "model.encoder": "tu-test_resnet",
        "model.encoder_weights": "none",
        "training.batch_labeled": "2",
        "training.batch_unlabeled": "2",
    }
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    first = torchrun(str(folder_dataset), "--labeled", "4", "--epochs", "2", *overrides)
    assert first.returncode == 0, first.stderr
    run = tmp_path / "runs/discs-consistency-4-seed0"
    assert first.stdout.count("Finished 2 epochs") == 1
    assert first.stderr.count("epoch 2/2") == 1
    second = torchrun("--resume", str(run), "--epochs", "3")
    assert second.returncode == 0, second.stderr
    assert len((run / "epochs.csv").read_text().splitlines()) == 4
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [run.name]
