"""The history of predictions: agreements between successive epochs and with the mask, per pixel."""

import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import Tensor

from segconf.conventions import IGNORE
from segconf.history.storage import check_facts, mismatch, read_generation, write_generation, zeros


class PredictionHistory:
    """Counts, per pixel, of agreements with the previous epoch and with the mask.

    Every training image has a slot (its case number); labeled images have another one for their
    correct predictions. Counters are as narrow as the planned epochs allow: uint8, or uint16 by
    itself beyond 256 epochs (agreements) or 255 (correct). An image recorded more often than
    planned is an error: a counter never wraps.

    The working arrays live in memory, or memory-mapped in unnamed files of the folder ``scratch``,
    which vanish with the process. What survives a crash is what ``commit`` wrote.
    """

    def __init__(
        self,
        images: int,
        size: tuple[int, ...],
        *,
        labeled: Sequence[int],
        epochs: int,
        count_classes: int = 0,
        scratch: Path | None = None,
    ) -> None:
        """Start an empty history.

        Args:
            images: number of training images; cases are numbered from 0.
            size: (H, W) or (D, H, W) of the unaugmented views.
            labeled: cases that come with a mask.
            epochs: most records that an image will get.
            count_classes: number of classes whose label frequencies are counted; 0 counts none.
            scratch: folder for memory-mapped working arrays; None keeps them in memory.
        """
        if len(set(labeled)) != len(labeled) or any(not 0 <= case < images for case in labeled):
            raise ValueError(f"labeled cases must be different numbers in 0..{images - 1}")
        if epochs < 1 or not 0 <= count_classes <= IGNORE:
            raise ValueError(f"epochs must be positive and count_classes in 0..{IGNORE}")
        self.images = images
        self.size = tuple(size)
        self.labeled = tuple(int(case) for case in labeled)
        self.epochs = epochs
        self.count_classes = count_classes
        self._slot = np.full(images, -1)  # (N,) labeled case -> row of "correct"
        self._slot[list(self.labeled)] = np.arange(len(self.labeled))
        self._records = np.zeros(images, np.int64)  # (N,) epochs in which the image was recorded
        self._last_epoch = np.full(images, -1)  # (N,)
        self.scratch = scratch

    @cached_property
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """Working arrays, made when they are first needed."""
        return {
            name: zeros(shape, dtype, self.scratch)
            for name, (shape, dtype) in self._layout().items()
        }

    def _layout(self) -> dict[str, tuple[tuple[int, ...], DTypeLike]]:
        """Shape and type of each array; absent where there is nothing to count."""
        layout: dict[str, tuple[tuple[int, ...], DTypeLike]] = {
            "last_prediction": ((self.images, *self.size), np.uint8),
            # T epochs have T - 1 comparisons: 8 bits hold the agreements of 256 epochs ...
            "agreements": ((self.images, *self.size), np.min_scalar_type(self.epochs - 1)),
        }
        if self.labeled:
            # ... but the correct predictions, and the frequencies, of only 255.
            shape = (len(self.labeled), *self.size)
            layout["correct"] = (shape, np.min_scalar_type(self.epochs))
        if self.count_classes:
            shape = (self.images, self.count_classes, *self.size)
            layout["frequencies"] = (shape, np.min_scalar_type(self.epochs))
        return layout

    @property
    def nbytes(self) -> int:
        """Size of the working arrays, and of one committed generation on the disk."""
        return sum(
            math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self._layout().values()
        )

    def record(
        self, cases: Tensor, predictions: Tensor, *, epoch: int, masks: Tensor | None = None
    ) -> None:
        """Take down the predictions of a batch, once per image and epoch.

        An image that was already recorded in this epoch is left as it is: the first record counts,
        within a batch and between batches (the labeled loader restarts within an epoch). Successive
        predictions are those of successive records, even if the image was absent in between.

        Args:
            cases: (B,) case numbers.
            predictions: (B, H, W) class of each pixel of the unaugmented view, 0..254.
            epoch: number of the epoch; it never decreases for an image.
            masks: (B, H, W); needed if the batch holds labeled cases, rows of others are not read.
                Pixels with 255 (ignore) are never correct; leave them out of the loss.
        """
        indices = self._indices(cases)  # (B,)
        self._check_batch(indices, predictions, masks)
        rows = self._unseen_rows(indices, epoch)
        if rows.size == 0:
            return
        labels = predictions.detach().to(torch.uint8).cpu().numpy()  # (B, H, W)
        truths = None if masks is None else masks.detach().cpu().numpy()  # (B, H, W)
        for row in rows:
            self._record_image(indices[row], labels[row], None if truths is None else truths[row])
        self._records[indices[rows]] += 1
        self._last_epoch[indices[rows]] = epoch

    def _record_image(
        self, case: int, labels: NDArray[np.uint8], mask: NDArray[Any] | None
    ) -> None:
        last = self._arrays["last_prediction"][case]  # (H, W), a view like all rows below
        if self._records[case]:
            self._arrays["agreements"][case] += last == labels
        last[...] = labels
        if self._slot[case] >= 0 and mask is not None:
            self._arrays["correct"][self._slot[case]] += labels == mask
        if self.count_classes:
            counts = self._arrays["frequencies"][case]  # (K, H, W)
            raised = np.take_along_axis(counts, labels[None], axis=0) + counts.dtype.type(1)
            np.put_along_axis(counts, labels[None], raised, axis=0)

    def consistency(self, cases: Tensor) -> Tensor:
        """Share of successive records whose predictions agree (Eq. 1 of the paper).

        Before the second record of an image it is 1: equal targets cost nothing in the ranking.

        Args:
            cases: (B,) case numbers.

        Returns:
            (B, H, W) float32 in [0, 1], on the device of ``cases``.
        """
        indices = self._indices(cases)
        comparisons = np.maximum(self._records[indices] - 1, 0)  # (B,)
        counts = self._arrays["agreements"][indices]  # (B, H, W)
        return _fraction(counts, comparisons, empty=1.0, device=cases.device)

    def correctness(self, cases: Tensor) -> Tensor:
        """Share of records whose prediction equals the mask; 1 everywhere before the first record.

        Pixels that the mask says to ignore have 0.

        Args:
            cases: (B,) case numbers, all of them labeled.

        Returns:
            (B, H, W) float32 in [0, 1], on the device of ``cases``.
        """
        indices = self._indices(cases)
        slots = self._slot[indices]  # (B,)
        if (slots < 0).any():
            raise ValueError(f"case {indices[slots < 0][0]} has no mask, so it has no correctness")
        counts = self._arrays["correct"][slots] if slots.size else np.zeros((0, *self.size))
        return _fraction(counts, self._records[indices], empty=1.0, device=cases.device)

    def frequencies(self, cases: Tensor) -> Tensor:
        """Share (B, K, H, W) of records with each class, for cases (B,); 0 before the first."""
        if not self.count_classes:
            raise ValueError("this history does not count classes: set count_classes")
        indices = self._indices(cases)
        counts = self._arrays["frequencies"][indices]  # (B, K, H, W)
        return _fraction(counts, self._records[indices], empty=0.0, device=cases.device)

    def commit(self, folder: Path, *, epoch: int) -> int:
        """Write the state after an epoch into a folder; call it before saving the checkpoint.

        Each array becomes ``<name>-<epoch>.npy``, which numpy can map. The two commits before are
        kept for the checkpoint before a corrupt one; a crash leaves them as they were.

        Returns:
            A checksum to store in the checkpoint and to hand to ``restore``.
        """
        return write_generation(folder, epoch, self._arrays, self._facts())

    def _facts(self) -> dict[str, Any]:
        """What a generation has to say beside its arrays."""
        return {
            "images": self.images,
            "size": self.size,
            "labeled": self.labeled,
            "epochs": self.epochs,
            "count_classes": self.count_classes,
            "records": self._records.tolist(),
            "last_epoch": self._last_epoch.tolist(),
        }

    @classmethod
    def restore(
        cls,
        folder: Path,
        *,
        epoch: int,
        checksum: int | None = None,
        epochs: int | None = None,
        scratch: Path | None = None,
    ) -> Self:
        """Continue from the state that ``commit`` wrote after an epoch.

        Args:
            folder: as given to ``commit``.
            epoch: epoch of the checkpoint.
            checksum: what ``commit`` returned; None accepts any generation of this epoch.
            epochs: most records per image from the start of training; None keeps the plan. Counters
                become wider as needed.
            scratch: folder for memory-mapped working arrays; None loads them into memory.

        Raises:
            FileNotFoundError: nothing was committed for this epoch.
            ValueError: what was committed is damaged, or not that of the checkpoint.
        """
        arrays, facts = read_generation(folder, epoch, checksum=checksum)
        check_facts(folder, arrays, facts)
        planned = facts["epochs"] if epochs is None else epochs
        most = max(facts["records"], default=0)
        if planned < most:
            raise ValueError(f"{folder}: an image has {most} records, but {planned} are planned")
        history = cls._empty(facts, planned, scratch)
        if set(arrays) != set(history._arrays):
            raise ValueError(mismatch(folder, arrays))
        for name, array in arrays.items():
            history._arrays[name][...] = array
        history._records[:] = facts["records"]
        history._last_epoch[:] = facts["last_epoch"]
        return history

    @classmethod
    def _empty(cls, facts: dict[str, Any], epochs: int, scratch: Path | None) -> Self:
        """An empty history like the one that had these facts."""
        images, size, labeled = facts["images"], tuple(facts["size"]), facts["labeled"]
        counted = facts["count_classes"]
        return cls(
            images, size, labeled=labeled, epochs=epochs, count_classes=counted, scratch=scratch
        )

    def _indices(self, cases: Tensor) -> NDArray[np.int64]:
        indices: NDArray[np.int64] = cases.detach().cpu().numpy().astype(np.int64)  # (B,)
        if indices.ndim != 1 or ((indices < 0) | (indices >= self.images)).any():
            raise ValueError(f"cases must be (B,) numbers in 0..{self.images - 1}")
        return indices

    def _check_batch(
        self, indices: NDArray[np.int64], predictions: Tensor, masks: Tensor | None
    ) -> None:
        shape = (len(indices), *self.size)
        if predictions.shape != shape or predictions.is_floating_point():
            raise ValueError(f"predictions must be {shape} integers, not {predictions.shape}")
        classes = self.count_classes or IGNORE
        if predictions.numel():
            lowest, highest = (int(value) for value in predictions.aminmax())
            if lowest < 0 or highest >= classes:
                raise ValueError(f"predictions must be classes in 0..{classes - 1}")
        if masks is None and (self._slot[indices] >= 0).any():
            raise ValueError("the batch holds labeled cases: their masks are needed")
        if masks is not None and masks.shape != shape:
            raise ValueError(f"masks must be {shape}, not {masks.shape}")

    def _unseen_rows(self, indices: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """Rows of the batch that are the first record of their image in this epoch."""
        if (self._last_epoch[indices] > epoch).any():
            raise ValueError(f"an image of this batch was recorded after epoch {epoch}")
        _, first = np.unique(indices, return_index=True)  # (U,) first row of each image
        rows: NDArray[np.int64] = first[self._last_epoch[indices[first]] < epoch]
        if (self._records[indices[rows]] >= self.epochs).any():
            raise ValueError(
                f"the history was planned for {self.epochs} epochs and an image has that many "
                "records: restore it with more epochs"
            )
        return rows


def _fraction(
    counts: NDArray[Any], totals: NDArray[np.int64], *, empty: float, device: torch.device
) -> Tensor:
    """Counts of each image divided by its total; ``empty`` where the total is 0."""
    # Narrow integers travel to the device, not floats.
    fraction = torch.from_numpy(counts).to(device).to(torch.float32)  # (B, ...)
    total = torch.from_numpy(totals).to(device).to(torch.float32)  # (B,)
    fraction /= total.clamp(min=1).view(-1, *(1 for _ in counts.shape[1:]))
    if not totals.all():
        fraction[total == 0] = empty
    return fraction
