"""Soft Dice: overlap of probabilities and masks, as a loss.

The sums run over all pixels of the batch, not over those of each image: an image without a
structure, or with a few pixels of it, does not decide alone about its class.
"""

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from segconf.conventions import IGNORE


def overlap_sums(logits: Tensor, masks: Tensor) -> Tensor:
    """What the Dice of every class is made of; sums over parts of a batch can be added.

    Args:
        logits: (B, K, H, W).
        masks: (B, H, W) integers; a pixel of 255 does not count.

    Returns:
        (3, K): for each class the sum of its probability over the pixels of the class, the sum of
        its probability over all pixels, and the number of its pixels.
    """
    counted = masks != IGNORE  # (B, H, W)
    probabilities = logits.softmax(dim=1).movedim(1, -1)[counted]  # (N, K)
    labels = one_hot(masks[counted].long(), logits.shape[1]).to(probabilities)  # (N, K)
    hits = (probabilities * labels).sum(dim=0)
    return torch.stack([hits, probabilities.sum(dim=0), labels.sum(dim=0)])


def soft_dice_loss(sums: Tensor) -> Tensor:
    """One minus the mean Dice of the classes: ``1 - mean_k 2 sum(p_k y_k) / sum(p_k + y_k)``.

    The mean is over the classes that occur in the masks, the background included: for a class
    without a pixel the Dice is 0, whatever the network says. Without any pixel the loss is 0.

    Args:
        sums: (3, K) of `overlap_sums`, with gradient.
    """
    hits, said, pixels = sums.unbind()  # (K,) each
    occurs = pixels > 0  # (K,)
    dice = 2 * hits / (said + pixels).clamp(min=1)  # of a class that occurs, the sum is at least 1
    costs = torch.where(occurs, 1 - dice, 0.0)
    return costs.sum() / occurs.sum().clamp(min=1)
