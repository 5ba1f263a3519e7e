"""One network, several sets of weights: the passes of snapshots and of ensembles."""

import copy
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from torch import Tensor, nn

from segconf.snapshots import load_into


class WeightPasses:
    """One pass for each weights file, by one network whose weights are exchanged.

    The files are mapped, not kept in memory: whatever their number, they cost one more set of
    weights. `benchmarks/snapshots.py` compares this with the alternatives.
    """

    def __init__(self, network: nn.Module, files: Sequence[Path]) -> None:
        """Use a copy of a network in evaluation mode; the network itself is left as it is."""
        self.count = len(files)
        self._network = copy.deepcopy(network)
        self._files = tuple(files)
        self._lock = threading.Lock()  # the weights of a pass are for one thread at a time

    def __call__(self, images: Tensor) -> Iterator[Tensor]:
        """Logits of every set of weights."""
        for file in self._files:
            with self._lock:
                load_into(self._network, file)
                logits = self._network(images)
            yield logits
