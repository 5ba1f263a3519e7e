"""One epoch of our trainer on labels against a plain PyTorch loop that does the same passes.

Both train a PreAct-ResNet20 with the same weights on the same images of 32 x 32, 64 labeled and 128
unlabeled a step: one pass over flipped and cropped views, one over unaugmented views, three loss
terms, SGD. The loop keeps everything in tensors and has no options: it is what one would write
for this case alone. The steps alternate, so that other work on the machine slows both alike.

Run: python benchmarks/training.py --task classification
Bar: our time at most 1.1 of the loop.
"""

import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

from segconf.config.loading import load_config
from segconf.config.schema import ExperimentConfig
from segconf.data.training_set import (
    Normalization,
    TrainingDataset,
    TrainingPixels,
    build_loader,
)
from segconf.history.predictions import PredictionHistory
from segconf.losses.ranking_terms import total_loss
from segconf.methods.method import LossContext, method_of
from segconf.models.encoders import encoder_normalization
from segconf.processes import ProcessGroup
from segconf.training.optimizer import build_optimizer
from segconf.training.step import StepOptions, TwoViews, step_terms

SIDE, CLASSES = 32, 10
LABELED, UNLABELED = 1000, 3840
BATCH_LABELED, BATCH_UNLABELED = 64, 128
STEPS = UNLABELED // BATCH_UNLABELED
WARM_UP = 3
CPU = torch.device("cpu")


def make_pixels() -> TrainingPixels:
    """Noise with labels; the first images are the labeled ones."""
    generator = np.random.default_rng(0)
    count = LABELED + UNLABELED
    images = generator.integers(0, 256, (count, SIDE, SIDE, 3), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, (LABELED, 1, 1), dtype=np.uint8)
    rows = np.arange(count)
    return TrainingPixels(
        images=images,
        labeled_rows=rows[:LABELED],
        unlabeled_rows=rows[LABELED:],
        labeled_masks=labels,
        validation_images=images[:0],
        validation_masks=labels[:0],
    )


def settings() -> ExperimentConfig:
    """Those of configs/cifar10_cpu.yaml that concern a step."""
    return load_config(
        overrides=[
            *("data.task=classification", "data.size=[32, 32]", f"model.classes={CLASSES}"),
            *("model.encoder=preact_resnet20", "model.encoder_weights=none"),
            *("augmentation.scale=[1.0, 1.0]", "augmentation.padding=4"),
            *("augmentation.vertical_flip=0.0", "loss.pairs=all", "loss.consistency_weight=0.5"),
            *("training.optimizer=sgd", "training.learning_rate=0.1"),
            "training.weight_decay=0.0001",
        ]
    )


def our_epoch(pixels: TrainingPixels, config: ExperimentConfig) -> Iterator[float]:
    """The steps of our trainer, with the making of their batches."""
    torch.manual_seed(0)
    method = method_of(config)
    model = method.build(config.model, config.data.task)
    model = model.to(memory_format=torch.channels_last).train()
    optimizer = build_optimizer(model, config.training)
    history = PredictionHistory(
        LABELED + UNLABELED, config.output_size, labeled=range(LABELED), epochs=2
    )
    mean, std = encoder_normalization(config.model.encoder, config.model.channels)
    dataset = TrainingDataset(
        pixels,
        steps=STEPS,
        batch_labeled=BATCH_LABELED,
        augmentation=config.augmentation,
        normalization=Normalization(mean, std),
        seed=0,
    )
    views, options = TwoViews(model), StepOptions.of_epoch(config, method, 0)
    generator = torch.Generator().manual_seed(0)
    context = LossContext(config.loss, history, ProcessGroup(), generator, CPU)
    weights = method.weights(config.loss)
    for step in build_loader(dataset, workers=0):
        loss = total_loss(step_terms(views, step, method, options, context), weights)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


def plain_epoch(pixels: TrainingPixels, config: ExperimentConfig) -> Iterator[float]:
    """The same steps, written out for this case."""
    torch.manual_seed(0)
    model = method_of(config).build(config.model, config.data.task)
    model = model.to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images = torch.from_numpy(pixels.images).permute(0, 3, 1, 2)  # (N, C, H, W) uint8
    labels = torch.from_numpy(pixels.labeled_masks)[:, 0, 0].long()
    mean, std = encoder_normalization(config.model.encoder, 3)
    scale = torch.tensor(std).view(1, 3, 1, 1) * 255
    offset = torch.tensor(mean).view(1, 3, 1, 1) * 255
    last = torch.full((len(images),), -1)
    agreements, correct, seen = (torch.zeros(len(images)) for _ in range(3))
    for step in range(STEPS):
        chosen = torch.randint(LABELED, (BATCH_LABELED,))
        others = torch.arange(BATCH_UNLABELED) + LABELED + step * BATCH_UNLABELED
        both = torch.cat([chosen, others])
        plain = (images[both].float() - offset) / scale
        outputs = model(cropped(plain[:BATCH_LABELED]))[:, :, 0, 0]
        confidence, prediction = model(plain)[:, :, 0, 0].softmax(dim=1).max(dim=1)
        agreements[both] += (last[both] == prediction).float()
        correct[chosen] += (prediction[:BATCH_LABELED] == labels[chosen]).float()
        last[both], seen[both] = prediction, seen[both] + 1
        certain, target = confidence, agreements[both] / seen[both]
        loss = (
            cross_entropy(outputs, labels[chosen])
            + 0.5 * ranked(certain[:BATCH_LABELED], correct[chosen] / seen[chosen])
            + 0.5 * ranked(certain[:BATCH_LABELED], target[:BATCH_LABELED])
            + 0.5 * ranked(certain[BATCH_LABELED:], target[BATCH_LABELED:])
        )
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


def cropped(images: Tensor) -> Tensor:
    """Padded by 4 pixels, cropped and flipped at random, image by image."""
    larger = pad(images, (4, 4, 4, 4))
    views = []
    for image in larger:
        top, left = torch.randint(9, (2,)).tolist()
        view = image[:, top : top + SIDE, left : left + SIDE]
        views.append(view.flip(2) if torch.rand(()) < 0.5 else view)
    return torch.stack(views)


def ranked(confidence: Tensor, target: Tensor) -> Tensor:
    """Ranking loss over a random cycle."""
    partner = torch.randperm(len(target))
    target = (target - target.min()) / (target.max() - target.min()).clamp(min=1e-9)
    gap = target - target[partner]
    return torch.relu(gap.abs() - gap.sign() * (confidence - confidence[partner])).mean()


def main() -> None:
    """Alternate the steps and print times and ratio."""
    pixels, config = make_pixels(), settings()
    designs = {"ours": our_epoch(pixels, config), "plain loop": plain_epoch(pixels, config)}
    print(f"PreAct-ResNet20, {SIDE} x {SIDE}, batch {BATCH_LABELED} + {BATCH_UNLABELED}, ", end="")
    print(f"{STEPS - WARM_UP} steps, {torch.get_num_threads()} threads")
    seconds: dict[str, list[float]] = {name: [] for name in designs}
    for number in range(STEPS):
        for name, epoch in designs.items():
            started = time.perf_counter()
            next(epoch)
            if number >= WARM_UP:
                seconds[name].append(time.perf_counter() - started)
    for name, times in seconds.items():
        print(f"{name:<12}{1000 * float(np.median(times)):8.1f} ms a step")
    medians = [float(np.median(times)) for times in seconds.values()]
    ratio = medians[0] / medians[1]
    print(f"bar 1.1:    {'met' if ratio <= 1.1 else 'missed'} ({ratio:.3f}, of medians)")
