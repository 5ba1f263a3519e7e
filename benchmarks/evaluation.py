"""Time, memory and accuracy of ``ConfidenceMetrics`` at the size of the ISIC2017 test set.

    python benchmarks/evaluation.py [--images 600] [--skip-libraries]

Makes 600 x 192 x 256 logits (about 94% right, a quarter of the pixels at confidence 1.0 in float32)
and prints, in one run, ours beside a per-pixel Python loop (measured at 1 Mpx, scaled linearly) and
beside scikit-learn and torchmetrics for the metrics they have. torchmetrics is no dependency of
segconf; without it that part is left out. To have it for one run only:

    pip install --no-deps --target /tmp/extra torchmetrics lightning-utilities
    PYTHONPATH=/tmp/extra python benchmarks/evaluation.py
"""

import argparse
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import average_precision_score, confusion_matrix, log_loss, roc_curve
from torch import Tensor

from segconf.metrics.bootstrap import bootstrap_metrics
from segconf.metrics.streaming import ConfidenceMetrics

HEIGHT, WIDTH = 192, 256
LOOP_PIXELS = 1_000_000
BATCH = 50


def make_logits(images: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Overconfident logits (B, 2, H, W) and labels (B, H, W)."""
    logits = torch.empty(images, 2, HEIGHT, WIDTH)
    labels = torch.empty(images, HEIGHT, WIDTH, dtype=torch.long)
    shape = (HEIGHT, WIDTH)
    for index in range(images):
        log_odds = torch.empty(shape).log_normal_(2.18, 1.0, generator=generator)
        correct = torch.rand(shape, generator=generator) < torch.sigmoid(0.2 + 0.43 * log_odds)
        labels[index] = torch.rand(shape, generator=generator) < 0.25
        side = torch.where((labels[index] == 1) == correct, 0.5, -0.5)
        middle = torch.randn(shape, generator=generator)
        logits[index, 0] = middle - side * log_odds
        logits[index, 1] = middle + side * log_odds
    return logits, labels


def count(logits: Tensor, labels: Tensor, repeats: int = 1) -> ConfidenceMetrics:
    """All pixels, in batches, as a loader would deliver them."""
    metrics = ConfidenceMetrics()
    for _ in range(repeats):
        for start in range(0, len(logits), BATCH):
            metrics.update(logits[start : start + BATCH], labels[start : start + BATCH])
    return metrics


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def extra_memory(function: Callable[[], object]) -> float:
    """Peak resident memory of a call above the level before it, in MiB; nan without /proc."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = _memory("VmRSS")
        function()
        return (_memory("VmHWM") - before) / 1024
    except OSError:
        return math.nan


def memory_of_ours(images: int, repeats: int) -> float:
    """Extra memory of ours in MiB, in a process in which nothing else has been freed before."""
    logits, labels = make_logits(images, torch.Generator().manual_seed(0))
    count(logits[:4], labels[:4]).compute()
    return extra_memory(lambda: count(logits, labels, repeats).compute())


def _memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise OSError(f"{field} is not in /proc/self/status")


def pixel_loop(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> dict[str, float]:
    """The metrics one pixel after the other: numpy rows of K numbers, Python lists of results."""
    confidences, corrects, losses, squares = [], [], [], []
    confusion = [[0, 0], [0, 0]]
    bins = [[0.0, 0.0] for _ in range(15)]
    for image, mask in zip(logits, labels, strict=True):
        for row in range(image.shape[1]):
            for column in range(image.shape[2]):
                exponent = np.exp(image[:, row, column] - image[:, row, column].max())
                probability = exponent / exponent.sum()
                label = mask[row, column]
                prediction = probability.argmax()
                confidence = probability[prediction]
                target = np.eye(2)[label]
                confusion[label][prediction] += 1
                confidences.append(confidence)
                corrects.append(prediction == label)
                losses.append(-np.log(max(probability[label], 1e-12)))
                squares.append(((probability - target) ** 2).sum())
                place = bins[min(math.ceil(confidence * 15) - 1, 14)]
                place[0] += confidence
                place[1] += prediction == label
    return {
        "ece": sum(abs(right - sure) for sure, right in bins) / len(corrects),
        "nll": float(sum(losses)) / len(losses),
        "brier": float(sum(squares)) / len(squares),
        **_ranking_loop(confidences, corrects),
    }


def float_loop(logits: NDArray[np.float32], labels: NDArray[np.int64]) -> dict[str, float]:
    """The same with Python floats only: the fastest loop that is still one pixel at a time."""
    confidences, corrects = [], []
    bins = [[0.0, 0.0] for _ in range(15)]
    confusion = [[0, 0], [0, 0]]
    losses = squares = 0.0
    first, second = logits[:, 0].ravel().tolist(), logits[:, 1].ravel().tolist()
    for zero, one, label in zip(first, second, labels.ravel().tolist(), strict=True):
        top = max(zero, one)
        weights = math.exp(zero - top), math.exp(one - top)
        total = weights[0] + weights[1]
        probability = weights[0] / total, weights[1] / total
        prediction = 0 if probability[0] >= probability[1] else 1
        confidence = probability[prediction]
        confusion[label][prediction] += 1
        confidences.append(confidence)
        corrects.append(prediction == label)
        losses -= math.log(max(probability[label], 1e-300))
        squares += sum((p - (index == label)) ** 2 for index, p in enumerate(probability))
        place = bins[min(math.ceil(confidence * 15) - 1, 14)]
        place[0] += confidence
        place[1] += prediction == label
    return {
        "ece": sum(abs(right - sure) for sure, right in bins) / len(corrects),
        "nll": losses / len(corrects),
        "brier": squares / len(corrects),
        **_ranking_loop(confidences, corrects),
    }


def _ranking_loop(confidences: list[float], corrects: list[bool]) -> dict[str, float]:
    order = sorted(range(len(confidences)), key=lambda index: -confidences[index])
    right = sum(corrects)
    errors, risk, best, fpr = 0, 0.0, math.inf, math.nan
    for position, index in enumerate(order):
        errors += not corrects[index]
        risk += errors / (position + 1)
        distance = abs((position + 1 - errors) / right - 0.95)
        if distance < best:
            best, fpr = distance, errors
    found, precision = 0, 0.0
    for position, index in enumerate(reversed(order)):
        if not corrects[index]:
            found += 1
            precision += found / (position + 1)
    return {"aurc": risk / len(order), "fpr95": fpr / errors, "aupr_error": precision / errors}


def exact_metrics(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Exact float64 values by sorting all pixels; needs some gigabytes."""
    margin = (logits[:, 1].double() - logits[:, 0].double()).flatten().numpy()
    correct = (margin > 0) == labels.flatten().bool().numpy()
    rank = np.abs(margin)
    confidence = 1 / (1 + np.exp(-rank))
    bins = np.searchsorted(np.arange(1, 15) / 15, confidence)
    gap = np.bincount(bins, correct.astype(np.float64) - confidence, minlength=15)
    fpr, tpr, _ = roc_curve(correct, rank, drop_intermediate=False)
    aurc, augrc = _exact_areas(rank, ~correct)
    right = int(correct.sum())
    return {
        "aurc": aurc,
        "eaurc": aurc - float((1 - right / np.arange(right + 1, len(rank) + 1)).sum() / len(rank)),
        "augrc": augrc,
        "fpr95": float(fpr[np.argmin(np.abs(tpr - 0.95))]),
        "aupr_error": float(average_precision_score(~correct, -rank)),
        "ece": float(np.abs(gap).sum() / len(rank)),
        "nll": float(np.mean(np.log1p(np.exp(-rank)) + rank * ~correct)),
        "brier": float(np.mean(2 * np.where(correct, 1 - confidence, confidence) ** 2)),
        "paper aurc": _exact_areas(confidence.astype(np.float32), ~correct)[0],
    }


def _exact_areas(rank: NDArray[np.floating], wrong: NDArray[np.bool_]) -> tuple[float, float]:
    """AURC and AUGRC with ties sharing their expected risk, from sorted pixels."""
    order = np.argsort(-rank, kind="stable")
    ranked, errors = rank[order], wrong[order].astype(np.float64)
    starts = np.flatnonzero(np.append(True, ranked[1:] != ranked[:-1]))
    sizes = np.diff(np.append(starts, len(ranked)))
    shared = np.repeat(np.add.reduceat(errors, starts) / sizes, sizes)
    selected = np.cumsum(shared)
    area = (selected.sum() - selected[-1] / 2) / len(ranked) ** 2
    return float((selected / np.arange(1, len(ranked) + 1)).mean()), float(area)


def library_times(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Seconds of scikit-learn and torchmetrics, each function with its input ready."""
    probability = logits.softmax(dim=1)
    confidence, prediction = (part.flatten() for part in probability.max(dim=1))
    truth, positive = labels.flatten(), probability[:, 1].flatten()
    correct, sure = (prediction == truth).numpy(), confidence.numpy()
    guesses, answers, p = prediction.numpy(), truth.numpy(), positive.double().numpy()
    calls: dict[str, Callable[[], object]] = {
        "sklearn roc_curve (FPR-95)": lambda: roc_curve(correct, sure),
        "sklearn average_precision_score": lambda: average_precision_score(~correct, -sure),
        "sklearn confusion_matrix (mIoU)": lambda: confusion_matrix(answers, guesses),
        "sklearn log_loss": lambda: log_loss(answers, p),
    }
    try:
        from torchmetrics import functional
    except ImportError:
        print("  torchmetrics: not installed, left out (see the top of this file)")
    else:
        calls |= {
            "torchmetrics binary_calibration_error": lambda: (
                functional.classification.binary_calibration_error(positive, truth, n_bins=15)
            ),
            "torchmetrics multiclass_calibration_error": lambda: (
                functional.classification.multiclass_calibration_error(
                    probability, labels, num_classes=2, n_bins=15
                )
            ),
            "torchmetrics binary_average_precision": lambda: (
                functional.classification.binary_average_precision(
                    -confidence, (prediction != truth).long()
                )
            ),
            "torchmetrics binary_roc": lambda: functional.classification.binary_roc(
                confidence, (prediction == truth).long()
            ),
            "torchmetrics binary_jaccard_index": lambda: (
                functional.classification.binary_jaccard_index(prediction, truth)
            ),
        }
    return {name: seconds(call) for name, call in calls.items()}


def report_ours(logits: Tensor, labels: Tensor) -> float:
    """Print time and memory of ours; return the seconds."""
    pixels = labels.numel()
    for repeats in (1, 10):
        # What earlier calls freed but the allocator kept would hide or add to what a call needs.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            extra = process.submit(memory_of_ours, len(logits), repeats).result()
        size = repeats * pixels / 1e6
        print(f"ours at {size:.1f} Mpx: {extra:.1f} MiB extra memory (bar: 64)")
    count(logits[:4], labels[:4]).compute()
    times = [seconds(lambda: count(logits, labels).compute()) for _ in range(5)]
    print(f"ours, all metrics: {min(times):.2f} s, {min(times) / pixels * 1e9:.1f} ns per pixel")
    return min(times)


def report_loops(logits: Tensor, labels: Tensor, ours: float) -> None:
    """Print the time of the loops over pixels, scaled to all pixels."""
    images = max(LOOP_PIXELS // (HEIGHT * WIDTH), 1)
    part, truth = logits[:images].numpy(), labels[:images].numpy()
    scale = labels.numel() / truth.size
    for name, loop in (("numpy rows", pixel_loop), ("Python floats", float_loop)):
        measured = seconds(lambda loop=loop: loop(part, truth))
        print(
            f"per-pixel Python, {name}: {measured:.1f} s for {truth.size / 1e6:.2f} Mpx, "
            f"{measured * scale:.0f} s for all, {measured * scale / ours:.0f} times ours "
            "(bar: 1000)"
        )


def report_accuracy(logits: Tensor, labels: Tensor) -> None:
    """Print the distance from exact values, and whether order and split matter."""
    metrics = count(logits, labels)
    result = metrics.compute()
    result["paper aurc"] = metrics.compute("paper")["aurc"]
    bars = {"aurc": 1e-8, "aupr_error": 5e-6, "fpr95": 5e-6, "ece": 1e-7}
    print("distance from exact float64 values:")
    for name, exact in exact_metrics(logits, labels).items():
        bar = f"(bar: {bars[name]:.0e})" if name in bars else ""
        print(f"  {name:12} {exact:.10f} {abs(result[name] - exact):.1e} {bar}")
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(1))
    merged = ConfidenceMetrics()
    for worker in order.chunk(3):
        part = ConfidenceMetrics()
        for index in worker:
            part.update(logits[index : index + 1], labels[index : index + 1])
        merged.merge(part)
    same = all(merged.compute(p) == metrics.compute(p) for p in ("strict", "paper"))
    print(f"bit-identical in random order, one image at a time, in three workers: {same}")


def report_bootstrap(logits: Tensor, labels: Tensor) -> None:
    """Print the time of intervals over images."""
    summaries = []
    for logit, label in zip(logits, labels, strict=True):
        image = ConfidenceMetrics()
        image.update(logit[None], label[None])
        summaries.append(image.summary())
    generator = torch.Generator().manual_seed(0)
    taken = seconds(lambda: bootstrap_metrics(summaries, generator, resamples=1000))
    print(f"bootstrap of {len(summaries)} images, 1000 resamples, all metrics: {taken:.1f} s")


def main() -> None:
    """Run all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--skip-libraries", action="store_true")
    options = parser.parse_args()
    logits, labels = make_logits(options.images, torch.Generator().manual_seed(0))
    saturated = accuracy = 0.0
    for logit, label in zip(logits, labels, strict=True):
        confidence, prediction = logit.softmax(dim=0).max(dim=0)
        saturated += float((confidence == 1).double().mean()) / len(logits)
        accuracy += float((prediction == label).double().mean()) / len(logits)
    print(f"{labels.numel() / 1e6:.1f} Mpx, accuracy {accuracy:.3f}, {saturated:.3f} at 1.0")
    ours = report_ours(logits, labels)
    report_loops(logits, labels, ours)
    if not options.skip_libraries:
        times = library_times(logits, labels)
        for name, taken in times.items():
            print(f"  {name}: {taken:.1f} s")
        total = sum(times.values())
        print(f"library functions: {total:.1f} s, {total / ours:.0f} times ours (bar: 20)")
    report_bootstrap(logits, labels)
    report_accuracy(logits, labels)


if __name__ == "__main__":
    main()
