"""Numbers of the paper, to stand beside ours."""

from collections.abc import Mapping
from dataclasses import dataclass

from segconf.config.ranges import Task
from segconf.errors import ConfigError
from segconf.metrics.definitions import METRICS

_RANKED = ("aurc", "eaurc", "fpr95", "ece", "nll", "brier")
PUBLISHED_METRICS: Mapping[Task, tuple[str, ...]] = {
    "segmentation": ("miou", *_RANKED),
    "classification": ("accuracy", *_RANKED),
}

Published = dict[int, dict[str, tuple[float, ...]]]
"""By number of labels and method, the metrics of the task in their scales."""

_ISIC: Published = {
    125: {
        "softmax": (0.801, 34.36, 31.33, 60.90, 6.45, 3.82, 13.96),
        "aes": (0.802, 21.12, 18.07, 57.26, 5.46, 4.17, 12.84),
        "mcdropout": (0.801, 30.23, 27.19, 61.45, 6.36, 4.05, 13.88),
        "aleatoric": (0.802, 27.66, 24.62, 59.55, 6.21, 3.86, 13.68),
        "crl": (0.810, 22.14, 19.33, 62.15, 4.11, 2.86, 12.25),
        "consistency": (0.812, 14.11, 11.23, 56.81, 3.05, 2.31, 11.46),
    },
    250: {
        "softmax": (0.819, 28.91, 26.45, 58.51, 5.62, 3.35, 12.45),
        "aes": (0.819, 18.08, 15.60, 54.09, 4.57, 3.41, 11.38),
        "mcdropout": (0.819, 25.38, 22.89, 58.31, 5.45, 3.39, 12.27),
        "aleatoric": (0.817, 25.96, 23.37, 57.80, 5.49, 3.43, 12.43),
        "crl": (0.818, 16.43, 13.90, 62.56, 3.93, 2.60, 11.64),
        "consistency": (0.817, 12.79, 10.21, 54.51, 2.56, 2.23, 10.71),
    },
    500: {
        "softmax": (0.822, 23.45, 21.09, 56.90, 5.22, 2.98, 11.88),
        "aes": (0.823, 15.74, 13.39, 54.29, 4.39, 3.10, 11.10),
        "mcdropout": (0.821, 21.21, 18.83, 56.69, 4.61, 2.68, 11.49),
        "aleatoric": (0.821, 21.32, 18.96, 56.41, 5.07, 3.20, 11.73),
        "crl": (0.822, 14.04, 11.64, 55.46, 2.82, 2.33, 10.64),
        "consistency": (0.823, 11.85, 9.42, 54.14, 2.48, 2.08, 10.44),
    },
    2000: {
        "softmax": (0.831, 16.39, 14.29, 53.69, 4.67, 2.87, 10.94),
        "aes": (0.829, 12.54, 10.40, 51.02, 3.98, 3.09, 10.40),
        "mcdropout": (0.834, 15.41, 13.40, 54.32, 4.51, 2.86, 10.69),
        "aleatoric": (0.828, 14.81, 12.66, 54.37, 4.57, 3.04, 10.94),
        "crl": (0.834, 10.17, 8.08, 51.83, 2.61, 2.02, 9.76),
        "consistency": (0.838, 11.18, 9.17, 52.27, 2.23, 1.89, 9.49),
    },
}
"""ISIC 2017 test, 600 images, UNet-ResNet34."""

_CIFAR10: Published = {
    2500: {
        "softmax": (0.717, 109.78, 65.32, 75.64, 20.23, 14.83, 47.17),
        "aes": (0.713, 108.94, 63.34, 74.31, 16.82, 14.46, 44.36),
        "mcdropout": (0.700, 122.45, 72.42, 76.43, 16.76, 16.49, 46.18),
        "aleatoric": (0.704, 119.76, 70.66, 75.29, 16.55, 16.30, 45.62),
        "crl": (0.718, 105.92, 61.95, 74.17, 13.15, 10.63, 42.20),
        "consistency": (0.755, 81.50, 48.72, 71.42, 5.77, 8.56, 35.24),
    },
    5000: {
        "softmax": (0.795, 60.54, 38.02, 68.64, 14.73, 11.26, 34.28),
        "aes": (0.799, 51.68, 29.99, 60.44, 8.16, 9.46, 28.51),
        "mcdropout": (0.808, 52.94, 33.25, 67.70, 8.80, 10.41, 29.01),
        "aleatoric": (0.810, 50.96, 31.73, 67.46, 8.67, 10.22, 28.69),
        "crl": (0.807, 51.76, 31.82, 65.94, 9.08, 7.16, 29.21),
        "consistency": (0.818, 44.43, 26.88, 64.64, 5.26, 6.42, 26.88),
    },
    10000: {
        "softmax": (0.849, 37.46, 25.44, 63.34, 11.03, 8.49, 25.59),
        "aes": (0.855, 30.75, 19.71, 57.09, 6.61, 7.23, 21.68),
        "mcdropout": (0.865, 28.58, 19.09, 61.39, 5.68, 7.41, 20.37),
        "aleatoric": (0.865, 28.64, 19.22, 61.80, 5.75, 7.47, 20.47),
        "crl": (0.856, 31.28, 20.51, 61.63, 5.71, 5.08, 21.71),
        "consistency": (0.860, 28.39, 18.19, 59.23, 3.99, 4.83, 20.77),
    },
    50000: {
        "softmax": (0.941, 9.11, 7.34, 40.42, 4.46, 3.34, 10.19),
        "aes": (0.942, 5.80, 4.09, 36.37, 1.61, 1.82, 8.69),
        "mcdropout": (0.942, 5.48, 3.80, 36.74, 1.45, 1.88, 8.48),
        "aleatoric": (0.943, 6.02, 4.38, 38.72, 1.25, 1.80, 8.36),
        "crl": (0.940, 6.02, 4.21, 38.81, 1.23, 1.81, 8.85),
        "consistency": (0.942, 5.83, 4.16, 40.69, 0.86, 1.76, 8.60),
    },
}
"""CIFAR-10 test, 10,000 images, PreAct-ResNet110."""

_CIFAR100: Published = {
    2500: {
        "softmax": (0.292, 506.70, 159.23, 79.15, 31.89, 38.25, 97.18),
        "aes": (0.289, 509.38, 157.50, 79.93, 30.17, 38.63, 95.77),
        "mcdropout": (0.269, 542.10, 165.06, 79.95, 42.43, 49.71, 108.54),
        "aleatoric": (0.269, 542.86, 165.56, 80.96, 42.48, 49.61, 108.81),
        "crl": (0.287, 507.43, 152.82, 79.12, 29.01, 37.33, 95.40),
        "consistency": (0.365, 399.49, 133.15, 75.36, 27.55, 33.54, 87.24),
    },
    5000: {
        "softmax": (0.425, 344.09, 132.95, 77.10, 32.74, 35.28, 86.17),
        "aes": (0.419, 335.02, 118.75, 73.30, 22.89, 34.04, 77.93),
        "mcdropout": (0.394, 379.60, 141.06, 77.04, 39.32, 44.43, 94.73),
        "aleatoric": (0.394, 378.72, 140.54, 77.48, 39.12, 44.19, 94.67),
        "crl": (0.437, 322.94, 122.50, 75.28, 29.51, 31.50, 82.09),
        "consistency": (0.482, 266.08, 100.22, 71.50, 18.61, 23.99, 70.33),
    },
    10000: {
        "softmax": (0.546, 214.17, 90.78, 72.72, 24.31, 24.19, 67.41),
        "aes": (0.546, 209.77, 86.38, 71.55, 19.63, 24.29, 63.62),
        "mcdropout": (0.523, 238.32, 100.70, 72.99, 30.58, 31.73, 75.05),
        "aleatoric": (0.521, 240.02, 100.94, 73.15, 30.54, 31.79, 75.27),
        "crl": (0.563, 196.11, 82.976, 70.37, 20.71, 21.20, 63.02),
        "consistency": (0.590, 168.57, 70.26, 68.30, 14.34, 17.55, 56.23),
    },
    50000: {
        "softmax": (0.753, 71.75, 38.63, 63.30, 12.67, 11.54, 37.26),
        "aes": (0.760, 65.22, 33.95, 62.17, 7.38, 9.04, 33.96),
        "mcdropout": (0.758, 66.92, 34.97, 63.27, 5.59, 9.49, 34.02),
        "aleatoric": (0.755, 67.87, 35.05, 61.69, 6.01, 9.45, 34.25),
        "crl": (0.768, 61.77, 32.57, 61.79, 8.59, 9.11, 33.39),
        "consistency": (0.780, 55.40, 29.36, 60.67, 7.87, 8.45, 31.52),
    },
}
"""CIFAR-100 test, 10,000 images, DenseNet-BC (k = 12, d = 100)."""

_CANCER: Published = {
    120: {
        "softmax": (0.616, 418.50, 333.03, 90.53, 13.76, 7.35, 51.86),
        "mmce": (0.625, 436.54, 355.43, 89.88, 8.86, 6.74, 48.01),
        "cape, bins": (0.614, 428.10, 341.29, 92.82, 9.60, 7.10, 50.57),
        "cape, kernel": (0.614, 414.27, 327.46, 88.96, 10.11, 7.12, 50.56),
        "ensemble": (0.620, 386.71, 303.07, 90.41, 10.33, 7.05, 49.54),
        "softmax + ets": (0.627, 384.90, 304.29, 90.89, 15.13, 7.69, 52.63),
        "mcdropout": (0.628, 351.36, 271.38, 91.51, 10.66, 6.80, 48.40),
        "crl": (0.628, 367.50, 287.58, 95.25, 9.22, 6.82, 48.44),
        "consistency": (0.627, 343.73, 263.20, 91.52, 6.43, 6.68, 47.42),
    },
}
"""Survival of lung cancer patients, 158 test slides."""


@dataclass(frozen=True, slots=True)
class PublishedSet:
    """What the paper has about a data set.

    Attributes:
        name: of the data set.
        task: of its networks.
        classes: that it has.
        rows: by number of labels and method.
    """

    name: str
    task: Task
    classes: int
    rows: Published


PUBLISHED = (
    PublishedSet("ISIC 2017", "segmentation", 2, _ISIC),
    PublishedSet("CIFAR-10", "classification", 10, _CIFAR10),
    PublishedSet("CIFAR-100", "classification", 100, _CIFAR100),
    PublishedSet("cancer survival", "classification", 2, _CANCER),
)


def published_set(task: Task, classes: int) -> PublishedSet | None:
    """The data set of the paper with this task and, for labels, so many classes."""
    for one in PUBLISHED:
        if one.task == task and (task == "segmentation" or one.classes == classes):
            return one
    return None


def has_published(task: Task, classes: int, labels: int) -> bool:
    """Whether the paper has numbers for a task and this number of labels."""
    known = published_set(task, classes)
    return known is not None and labels in known.rows


def published_values(task: Task, classes: int, labels: int) -> dict[str, dict[str, float]]:
    """Raw metrics of the paper by the name of their row.

    Rows for labels name the data set, which may not be that of ours.

    Raises:
        ConfigError: the paper has none.
    """
    known = published_set(task, classes)
    if known is None:
        raise ConfigError(
            f"paper: it has no numbers for labels of {classes} classes, only for 2 (cancer "
            "survival), 10 (CIFAR-10) and 100 (CIFAR-100)."
        )
    if labels not in known.rows:
        numbers = ", ".join(map(str, known.rows))
        raise ConfigError(f"paper = {labels} labels: the paper has numbers for {numbers}.")
    place = f"{known.name}, " if task == "classification" else ""
    return {
        f"{method} ({labels} labels, {place}published)": {
            metric: value / METRICS[metric].scale
            for metric, value in zip(PUBLISHED_METRICS[task], cells, strict=True)
        }
        for method, cells in known.rows[labels].items()
    }
