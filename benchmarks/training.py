"""One epoch of our trainer against the design of the published research code.

Both train a UNet-ResNet34 with the same weights on the same synthetic images of 192 x 256 with
250 : 1750 labeled and unlabeled images, scaled down. The reference design has separate forward
passes for the segmentation term, the correctness ranking and the consistency ranking; it sweeps all
images without gradient at the start of the epoch and at every restart of the labeled loader; it
takes the network as segmentation-models-pytorch makes it (benchmarks/decoder.py says what that
costs) with PyTorch's default memory layout and optimizer; and it decodes the full-size JPEG of
every image in every pass.
The pictures decoded here have 1200 x 1600 pixels, fewer than most of ISIC 2017. The decoding is
timed apart, so that the ratio without it can be read too. The steps of the designs alternate, so
that other work on the machine slows all of them alike. Beside them go the steps of `distillation`,
with flipped views, against those of `consistency`.

Run: python benchmarks/training.py (--task classification: see label_training.py)
Bars: our time at most 0.5 of the reference; recording and gathering the history below 2% of a step;
distillation at most 1.1 of consistency.
"""

import argparse
import math
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import label_training
import numpy as np
import segmentation_models_pytorch as smp
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from segconf.confidence import predict_with_confidence
from segconf.config.loading import load_config
from segconf.config.schema import AugmentationConfig, ExperimentConfig, ModelConfig
from segconf.data.training_set import (
    Normalization,
    TrainingDataset,
    TrainingPixels,
    TrainingStep,
    build_loader,
    training_batches,
)
from segconf.history.predictions import PredictionHistory
from segconf.history.probabilities import ProbabilityHistory
from segconf.losses.ranking import random_partners, ranking_loss
from segconf.losses.ranking_terms import normalize, total_loss
from segconf.methods.method import LossContext, method_of
from segconf.models.encoders import encoder_normalization
from segconf.processes import ProcessGroup
from segconf.training.initial_state import empty_history
from segconf.training.optimizer import build_optimizer
from segconf.training.step import StepOptions, TwoViews, step_terms

SIZE = (192, 256)
LABELED, UNLABELED = 10, 70
BATCH_LABELED, BATCH_UNLABELED = 2, 4
STEPS = math.ceil(UNLABELED / BATCH_UNLABELED)
RESTART = LABELED // BATCH_LABELED
PICTURE_SIZE = (1200, 1600)
EPOCHS_BEFORE = 2
CPU = torch.device("cpu")
MODEL = ModelConfig(encoder_weights="none")


def make_pixels() -> TrainingPixels:
    """Bright ellipses on noise; the first images are the labeled ones."""
    generator = np.random.default_rng(0)
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    count = LABELED + UNLABELED
    images = generator.integers(60, 110, (count, *SIZE, 3), dtype=np.uint8)
    masks = np.zeros((count, *SIZE), np.uint8)
    for number in range(count):
        row, column = generator.uniform(0.3, 0.7, 2) * SIZE
        radii = generator.uniform(20, 60, 2)
        masks[number] = ((rows - row) / radii[0]) ** 2 + ((columns - column) / radii[1]) ** 2 < 1
    images[masks == 1] += 70
    numbers = np.arange(count)
    return TrainingPixels(
        images=images,
        labeled_rows=numbers[:LABELED],
        unlabeled_rows=numbers[LABELED:],
        labeled_masks=masks[:LABELED],
        validation_images=images[:0],
        validation_masks=masks[:0],
    )


def our_config(method: str = "consistency") -> ExperimentConfig:
    """Settings of one of our methods; distillation as in its protocols."""
    views = "flipped" if method == "distillation" else "unaugmented"
    return load_config(
        overrides=[
            f"training.method={method}",
            f"training.epochs={EPOCHS_BEFORE + STEPS}",
            f"augmentation.history_views={views}",
        ]
    )


def make_history(config: ExperimentConfig, pixels: TrainingPixels) -> PredictionHistory:
    """A history with a past, so that all terms have something to learn from."""
    history = empty_history(config, pixels, Path())
    generator = torch.Generator().manual_seed(0)
    for epoch in range(EPOCHS_BEFORE):
        shape = (LABELED + UNLABELED, *SIZE)
        said = torch.randint(0, 2, shape, dtype=torch.uint8, generator=generator)
        cases = torch.arange(len(said))
        if isinstance(history, ProbabilityHistory):
            sure = torch.stack([1 - said, said], dim=1).float()  # (N, K, H, W)
            history.record(cases, said, epoch=epoch, masks=said, probabilities=sure)
        else:
            history.record(cases, said, epoch=epoch, masks=said)
    return history


def steps_of_epoch(
    pixels: TrainingPixels, normalization: Normalization, augmentation: AugmentationConfig
) -> TrainingDataset:
    """The data of one epoch, the same for all designs but for the flips of unaugmented views."""
    dataset = TrainingDataset(
        pixels,
        steps=STEPS,
        batch_labeled=BATCH_LABELED,
        augmentation=augmentation,
        normalization=normalization,
        seed=0,
    )
    dataset.start_epoch(EPOCHS_BEFORE)
    return dataset


class Stopwatch:
    """Sums the time spent in some functions."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, on the clock."""

        def call(*arguments: object, **options: object) -> object:
            started = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - started

        return call


def our_epoch(
    pixels: TrainingPixels,
    normalization: Normalization,
    config: ExperimentConfig,
    history_clock: Stopwatch,
) -> Iterator[object]:
    """The steps of our trainer."""
    torch.manual_seed(0)
    method = method_of(config)
    model = method.build(MODEL).to(memory_format=torch.channels_last).train()
    optimizer = build_optimizer(model, config.training)
    history = make_history(config, pixels)
    for name in ("record", "consistency", "correctness"):
        setattr(history, name, history_clock.timed(getattr(history, name)))

    views, options = TwoViews(model), StepOptions.of_epoch(config, method, EPOCHS_BEFORE)
    generator = torch.Generator().manual_seed(0)
    context = LossContext(config.loss, history, ProcessGroup(), generator, CPU)
    weights = method.weights(config.loss)
    for step in build_loader(steps_of_epoch(pixels, normalization, config.augmentation), workers=0):
        loss = total_loss(step_terms(views, step, method, options, context), weights)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


def reference_epoch(pixels: TrainingPixels, normalization: Normalization) -> Iterator[object]:
    """The steps of the reference design, each with the sweep that precedes it."""
    torch.manual_seed(0)
    model = smp.Unet(MODEL.encoder, encoder_weights=None, classes=MODEL.classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    config = our_config()
    history = make_history(config, pixels)
    generator = torch.Generator().manual_seed(0)
    dataset = steps_of_epoch(pixels, normalization, config.augmentation)
    for number, step in enumerate(build_loader(dataset, workers=0)):
        if number % RESTART == 0:
            sweep(model, pixels, normalization, history, EPOCHS_BEFORE + number)
        loss = reference_loss(model, step, history, generator)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


def sweep(
    model: nn.Module,
    pixels: TrainingPixels,
    normalization: Normalization,
    history: PredictionHistory,
    epoch: int,
) -> None:
    """Predict all training images and record them."""
    model.eval()
    with torch.no_grad():
        for batch in training_batches(pixels, BATCH_UNLABELED, normalization):
            prediction, _ = predict_with_confidence(model(batch.images))
            history.record(batch.cases, prediction, epoch=epoch, masks=batch.masks)


def reference_loss(
    model: nn.Module,
    step: TrainingStep,
    history: PredictionHistory,
    generator: torch.Generator,
) -> Tensor:
    """Three forward passes; every pixel ranked against the next of a random permutation."""
    if step.unlabeled is None:
        raise ValueError("every step has unlabeled images here")

    def confidence_of(images: Tensor) -> Tensor:
        return predict_with_confidence(model(images))[1].flatten()

    def ranked(confidence: Tensor, target: Tensor) -> Tensor:
        partner = random_partners(len(target), generator)
        return ranking_loss(confidence, normalize(target), partner)

    model.train()
    logits = model(step.augmented_images)
    segmentation = cross_entropy(logits, step.augmented_masks, ignore_index=255)
    model.eval()
    labeled, unlabeled = step.labeled, step.unlabeled
    correctness = ranked(
        confidence_of(labeled.images), history.correctness(labeled.cases).flatten()
    )
    both = torch.cat([labeled.cases, unlabeled.cases])
    consistency = ranked(
        confidence_of(torch.cat([labeled.images, unlabeled.images])),
        history.consistency(both).flatten(),
    )
    return segmentation + 0.5 * correctness + 0.15 * consistency


def write_pictures(folder: Path) -> list[Path]:
    """JPEGs of the size of a dermoscopy camera's, smooth with some grain."""
    generator = np.random.default_rng(0)
    files = []
    for number in range(LABELED + UNLABELED):
        rough = Image.fromarray(generator.integers(60, 200, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(rough.resize(PICTURE_SIZE[::-1], Image.Resampling.BICUBIC))
        grain = generator.integers(0, 12, smooth.shape, dtype=np.uint8)
        files.append(folder / f"{number}.jpg")
        Image.fromarray(smooth + grain).save(files[-1], quality=90)
    return files


def reference_decoding(files: list[Path]) -> Iterator[object]:
    """What the passes of the reference's steps read: a sweep now and then, three passes a step."""
    for number in range(STEPS):
        images = 3 * BATCH_LABELED + BATCH_UNLABELED
        if number % RESTART == 0:
            images += len(files)
        for index in range(images):
            with Image.open(files[index % len(files)]) as picture:
                small = picture.convert("RGB").resize(SIZE[::-1], Image.Resampling.BILINEAR)
                np.asarray(small)
        yield None


def choose() -> None:
    """Measure masks, or labels."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--task", choices=("segmentation", "classification"))
    if parser.parse_args().task == "classification":
        label_training.main()
    else:
        main()


def main() -> None:
    """Alternate the steps of the designs and print times, ratios and the part of the history."""
    pixels = make_pixels()
    normalization = Normalization(*encoder_normalization(MODEL.encoder, MODEL.channels))
    history_clock = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        designs = {
            "ours": our_epoch(pixels, normalization, our_config(), history_clock),
            "distillation": our_epoch(
                pixels, normalization, our_config("distillation"), Stopwatch()
            ),
            "reference": reference_epoch(pixels, normalization),
            "decoding": reference_decoding(write_pictures(Path(folder))),
        }
        print(f"one epoch, UNet-ResNet34, {SIZE[0]} x {SIZE[1]}, {LABELED} labeled and {UNLABELED}")
        print(f"unlabeled images, batch {BATCH_LABELED} + {BATCH_UNLABELED}, {STEPS} steps,")
        sweeps = math.ceil(STEPS / RESTART)
        print(f"{torch.get_num_threads()} threads, {sweeps} sweeps in the reference")
        seconds = dict.fromkeys(designs, 0.0)
        for _ in range(STEPS):
            for name, epoch in designs.items():
                started = time.perf_counter()
                next(epoch)
                seconds[name] += time.perf_counter() - started
    ours, memory = seconds["ours"], seconds["reference"]
    published = memory + seconds["decoding"]
    print(f"ours                               {ours:7.1f} s")
    print(f"reference, images from memory      {memory:7.1f} s   ours / this: {ours / memory:.3f}")
    print(f"reference, decoding in every pass  {published:7.1f} s   {ours / published:.3f}")
    fraction = history_clock.seconds / ours
    print(f"recording and gathering the history: {100 * fraction:.2f}% of our step")
    more = seconds["distillation"] / ours
    print(f"distillation against consistency:  {seconds['distillation']:7.1f} s   {more:.3f}")
    for words, total in (("images from memory", memory), ("decoding in every pass", published)):
        print(f"bar 0.5:  {'met' if ours <= 0.5 * total else 'missed'} ({words})")
    print(f"bar 2%:   {'met' if fraction < 0.02 else 'missed'}")
    print(f"bar 1.1:  {'met' if more <= 1.1 else 'missed'} (distillation)")


if __name__ == "__main__":
    choose()
