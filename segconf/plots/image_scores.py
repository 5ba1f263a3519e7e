"""Image-level plots: risk after referral, and scores of out-of-distribution images."""

from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import NDArray

from segconf.files import replacing
from segconf.plots.curves import COLOURS

BINS = 40


def referral_plot(
    curves: Mapping[str, NDArray[Any]], path: Path, *, target: float, chosen: str
) -> None:
    """Mean risk (1 - Dice) of the cases that are not referred, over the fraction that is.

    Args:
        curves: (N,) mean risk of the k best cases by score; the last one is the best possible.
        path: the picture to write.
        target: risk that the kept cases may have.
        chosen: the score of the run, drawn thicker.
    """
    figure = Figure(figsize=(6.8, 5.4), layout="constrained")
    axes = figure.add_subplot()
    best = list(curves)[-1]
    for colour, (name, curve) in zip(cycle(COLOURS), curves.items(), strict=False):
        referred = 1 - np.arange(1, len(curve) + 1) / len(curve)
        style, colour_used = ("--", "0.4") if name == best else ("-", colour)
        label = f"{name.replace('_', ' ')}, AURC {1e3 * curve.mean():.1f} (x 10$^3$)"
        axes.plot(
            referred,
            curve,
            style,
            color=colour_used,
            linewidth=2.4 if name == chosen else 1.2,
            label=label + (", used by the run" if name == chosen else ""),
        )
    overall = float(curves[best][-1])
    axes.axhline(overall, linestyle=":", color="0.4", label="random order")
    axes.axhline(target, linestyle="-.", color="black", linewidth=0.8, label="target")
    axes.set_xlabel("fraction of cases shown to an expert, worst score first")
    axes.set_ylabel("mean of 1 - Dice of the others")
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1.3 * max(overall, target))
    figure.legend(loc="outside lower center", ncols=2, fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def ood_plot(
    pairs: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], path: Path, *, threshold: float | None
) -> None:
    """Histograms of the scores of own and of out-of-distribution images, one panel per score.

    Args:
        pairs: scores of own and of out-of-distribution images by the name of the score.
        path: the picture to write.
        threshold: of the score of the features.
    """
    figure = Figure(figsize=(5.2 * len(pairs), 3.8), layout="constrained")
    panels = figure.subplots(1, len(pairs), squeeze=False)[0]
    for axes, (name, (own, others)) in zip(panels, pairs.items(), strict=True):
        low, high = min(own.min(), others.min()), max(own.max(), others.max())
        edges = np.linspace(low, high, BINS + 1) if high > low else BINS
        for values, kind, colour in (
            (own, "own images", COLOURS[0]),
            (others, "out of distribution", COLOURS[1]),
        ):
            weights = np.full(len(values), 1 / len(values))
            label = f"{kind} ({len(values)})"
            axes.hist(values, edges, weights=weights, color=colour, alpha=0.6, label=label)
        if name == "features" and threshold is not None:
            axes.axvline(threshold, color="black", linewidth=1, label="threshold of the run")
        axes.set_title(f"by {name}", loc="left", fontsize=10, pad=20)
        axes.set_xlabel("score: high = unlike the training images")
        axes.set_ylabel("fraction of images")
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 3}  # below the title
        axes.legend(**place, fontsize=8, frameon=False, borderpad=0, columnspacing=1)
        axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)


def expected_dice_plot(pairs: NDArray[Any], path: Path, *, error: float, spearman: float) -> None:
    """Dice that images reached over the Dice that was expected of them.

    Args:
        pairs: (N, 2) expected and reached; images without one of them are left out.
        path: the picture to write.
        error: mean absolute difference.
        spearman: correlation of the ranks.
    """
    known = np.asarray(pairs, np.float64).reshape(-1, 2)
    known = known[~np.isnan(known).any(axis=1)]
    figure = Figure(figsize=(5.4, 5.4), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1], [0, 1], "--", color="0.4", linewidth=1, label="as expected")
    label = f"{len(known)} images: mean absolute error {error:.3f}, Spearman {spearman:.3f}"
    axes.plot(known[:, 0], known[:, 1], ".", color=COLOURS[0], alpha=0.6, label=label)
    axes.set_xlabel("expected Dice")
    axes.set_ylabel("Dice")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)
    axes.set_aspect("equal")
    # Above the panel: points may lie anywhere in it.
    figure.legend(loc="outside upper center", ncols=2, fontsize=8, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    with replacing(path) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
