"""Empirical class frequencies of pixels with similar probabilities, as targets of a loss.

Liu et al. (2022), "Deep probability estimation". Probabilities are counted in equal cells, class by
class, so that the counts of several processes can be added and the order of pixels does not count.
"""

import torch
from torch import Tensor

from segconf.conventions import IGNORE

CELLS = 1000
"""Cells of [0, 1] in which probabilities are counted."""


def no_counts(classes: int) -> Tensor:
    """Counts (2, K, cells) of no pixel at all."""
    return torch.zeros(2, classes, CELLS, dtype=torch.int64)


def cell_counts(logits: Tensor, masks: Tensor) -> Tensor:
    """How often a class was given a probability, and how often the pixel was of that class.

    Args:
        logits: (B, K, H, W).
        masks: (B, H, W) integers; a pixel of 255 does not count.

    Returns:
        (2, K, cells) pixels by the cell of the probability of each class, all of them and those of
        the class.
    """
    classes = logits.shape[1]
    counted = masks != IGNORE
    cells = _cells(logits.softmax(dim=1)).movedim(1, -1)[counted]  # (N, K)
    places = cells + CELLS * torch.arange(classes, device=cells.device)  # (N, K)
    own = places.gather(1, masks[counted].long()[:, None])  # (N, 1)
    size = classes * CELLS
    both = [torch.bincount(part.flatten(), minlength=size) for part in (places, own)]
    return torch.stack(both).reshape(2, classes, CELLS)


def empirical_frequencies(counts: Tensor, *, bins: int | None, bandwidth: float) -> Tensor:
    """Frequency of each class among the pixels that were given a similar probability.

    With `bins`, similar are those in the same of so many bins with equally many pixels; a cell is
    in the bin of its middle pixel. Otherwise they are weighted by ``exp(-(p - q)^2 / 2 b^2)`` with
    the bandwidth b. Where there is nothing similar, the frequency is the probability itself.

    Args:
        counts: (2, K, cells) of `cell_counts`.
        bins: number of bins; None for the kernel.
        bandwidth: of the kernel.

    Returns:
        (K, cells) float64.
    """
    pixels, hits = counts.double()  # (K, cells) each
    centres = (torch.arange(CELLS, dtype=torch.float64) + 0.5) / CELLS  # (cells,)
    if bins is None:
        similar = (-((centres[:, None] - centres) ** 2) / (2 * bandwidth**2)).exp()
        all_similar, similar_hits = pixels @ similar, hits @ similar  # (K, cells) each
    else:
        middle = pixels.cumsum(dim=1) - pixels / 2
        numbers = (bins * middle / pixels.sum(dim=1, keepdim=True).clamp(min=1)).long()
        numbers = numbers.clamp(max=bins - 1)  # (K, cells)
        sums = [
            torch.zeros(len(part), bins, dtype=torch.float64).scatter_add(1, numbers, part)
            for part in (pixels, hits)
        ]
        all_similar, similar_hits = (one.gather(1, numbers) for one in sums)
    return torch.where(all_similar > 0, similar_hits / all_similar, centres)


def frequency_targets(logits: Tensor, frequencies: Tensor) -> Tensor:
    """The frequency of every class at its present probability, scaled to a sum of 1.

    Where all frequencies are 0, the probabilities themselves are the target.

    Args:
        logits: (B, K, H, W), without gradient.
        frequencies: (K, cells).

    Returns:
        (B, K, H, W).
    """
    probabilities = logits.softmax(dim=1)
    cells = _cells(probabilities)
    found = torch.stack(
        [own[cells[:, number]] for number, own in enumerate(frequencies)], dim=1
    )  # (B, K, H, W)
    total = found.sum(dim=1, keepdim=True)
    return torch.where(total > 0, found / total, probabilities)


def _cells(probabilities: Tensor) -> Tensor:
    """Number of the cell of every probability; 1 is in the last."""
    return (probabilities * CELLS).long().clamp(max=CELLS - 1)
