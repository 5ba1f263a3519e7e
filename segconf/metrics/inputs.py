"""From whatever array the caller holds to small, checked pieces on the CPU."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = Tensor | NDArray[Any]

# Small enough for the memory bound, large enough to hide the cost of calling an operation.
PIECE_VALUES = 1 << 20


def check_shapes(scores: Array, labels: Array, num_classes: int) -> None:
    """Refuse arrays that cannot be scores (B, K, ...) with labels (B, ...)."""
    expected = (*scores.shape[:1], *scores.shape[2:])
    if scores.shape[1:2] != (num_classes,) or tuple(labels.shape) != expected:
        raise ValueError(
            f"scores are {tuple(scores.shape)} and labels {tuple(labels.shape)}; "
            f"expected (B, {num_classes}, ...) and (B, ...) with the same B and space"
        )
    if not _is_kind(scores, "f"):
        raise ValueError(f"scores must be floating point, got {scores.dtype}")
    if not _is_kind(labels, "biu"):
        raise ValueError(f"labels must be integers, got {labels.dtype}")


@dataclass(frozen=True, slots=True)
class Piece:
    """Position of some pixels in a batch: images, and flattened pixels of each."""

    images: slice
    pixels: slice


def pieces(shape: Sequence[int]) -> list[Piece]:
    """Cut a batch (B, K, ...) into pieces of about the same number of values."""
    batch, num_classes, *space = shape
    pixels = math.prod(space)
    step = max(PIECE_VALUES // num_classes, 1)
    images = max(step // max(pixels, 1), 1)
    return [
        Piece(slice(first, first + images), slice(start, start + step))
        for first in range(0, batch, images)
        for start in range(0, pixels, step)
    ]


def cut(scores: Array, labels: Array, piece: Piece) -> tuple[Tensor, Tensor]:
    """The pixels of a piece.

    Args:
        scores: (B, K, ...) floating point.
        labels: (B, ...) integers.
        piece: which pixels.

    Returns:
        (K, b, p) scores in float32 or float64 and (b, p) labels in int64; contiguous only by
        chance.
    """
    some, truth = scores[piece.images], labels[piece.images]
    some = some.reshape(*some.shape[:2], math.prod(some.shape[2:]))[:, :, piece.pixels]
    truth = truth.reshape(len(truth), math.prod(truth.shape[1:]))[:, piece.pixels]
    return _float_tensor(some).movedim(1, 0), _integer_tensor(truth)


def without_ignored(scores: Tensor, labels: Tensor, ignore_index: int) -> tuple[Tensor, Tensor]:
    """(K, n) scores and (n,) labels of the pixels that count, of a piece with others among them.

    Raises:
        ValueError: a label is neither a class nor the one to ignore.
    """
    keep = labels != ignore_index
    scores, labels = scores[:, keep], labels[keep]
    if not all_classes(labels, len(scores)):
        low, high = (int(value) for value in labels.aminmax())
        raise ValueError(
            f"labels range from {low} to {high}; expected 0 to {len(scores) - 1}, "
            f"or {ignore_index} for pixels to ignore"
        )
    return scores, labels


def all_classes(labels: Tensor, num_classes: int) -> bool:
    """Whether every label is a class."""
    if labels.numel() == 0:
        return True
    low, high = labels.aminmax()
    return bool(low >= 0) and bool(high < num_classes)


def check_logits(logits: Tensor) -> None:
    """Refuse NaN and infinity in logits (K, ...)."""
    # In memory the classes come second: in any other order the whole piece would be copied first.
    low, high = (float(value) for value in logits.transpose(0, 1).aminmax())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise ValueError("logits contain NaN or infinity; the model or its input is broken")


def check_probabilities(probabilities: Tensor, tolerance: float) -> None:
    """Refuse NaN, negative values, and pixels (K, ...) whose classes do not sum to one."""
    low = float(probabilities.amin())
    if not low >= 0:
        raise ValueError(f"probabilities contain {low}; expected values between 0 and 1")
    worst = float((probabilities.double().sum(dim=0) - 1).abs().amax())
    if not worst <= tolerance:
        raise ValueError(
            f"probabilities of a pixel sum to one within {tolerance}, here they miss it by "
            f"{worst:.3g}; pass logits to update() or normalise them"
        )


def sum_tolerance(probabilities: Array) -> float:
    """How far the sum over classes may be from one; half precision needs more room."""
    half = (torch.float16, torch.bfloat16, np.dtype(np.float16))
    return 1e-2 if probabilities.dtype in half else 1e-3


def on_cpu(array: Any) -> Array:
    """Tensors without graph on the CPU, everything else as numpy array."""
    if isinstance(array, Tensor):
        return array.detach().cpu()
    return np.asarray(array)


def _is_kind(array: Array, kinds: str) -> bool:
    """Whether the dtype is floating point ("f") or boolean, signed or unsigned ("biu")."""
    if isinstance(array, Tensor):
        floating = array.dtype.is_floating_point
        return floating if kinds == "f" else not (floating or array.dtype.is_complex)
    return array.dtype.kind in kinds


def _float_tensor(array: Array) -> Tensor:
    """Tensor in float64 if the input is, else in float32 (which holds half precision exactly)."""
    if isinstance(array, Tensor):
        return array if array.dtype == torch.float64 else array.float()
    dtype = np.float32 if np.can_cast(array.dtype, np.float32) else np.float64
    return torch.from_numpy(_native(array, dtype))


def _integer_tensor(array: Array) -> Tensor:
    if isinstance(array, Tensor):
        return array.long()
    return torch.from_numpy(_native(array, np.int64))


def _native(array: NDArray[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """Array that torch can share: writable, native byte order, contiguous; copied if need be."""
    return np.require(array, dtype=dtype, requirements=["C", "W"])
