"""Memory and time of averaging 30 snapshots of a UNet-ResNet34 on one image of 192 x 256.

Every design runs in a process of its own, on one thread, and reports its peak memory and the
processor time per image, beside those of a single softmax pass with the same network:

- swapped: what segconf does. Files are mapped and copied into the weights of a second network.
- lent: files are mapped, converted, and lent to the network for a call (functional_call).
- kept: half-precision tensors stay in memory and are copied into the network.
- batched: all weights are stacked, and one vectorised call (vmap) runs all networks.

Run: ``python benchmarks/snapshots.py`` (``--designs softmax,swapped`` for some of them)
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from segconf.checkpoints.weight_files import read_weights, write_snapshot
from segconf.config.schema import ModelConfig
from segconf.inference.predictors import (
    Pass,
    Predictor,
    SinglePass,
    WeightsPredictor,
    predict_batch,
)
from segconf.models.unet import build_unet

SNAPSHOTS, SIZE, REPEATS = 30, (192, 256), 2
DESIGNS = ("softmax", "swapped", "lent", "kept", "batched")
MEGABYTE = 1e6


def network() -> nn.Module:
    """A network with random weights, in evaluation mode."""
    return build_unet(ModelConfig(encoder_weights="none")).eval()


class LentWeights:
    """Weights that take the place of the network's own during a call."""

    def __init__(self, model: nn.Module, files: list[Path]) -> None:
        """Nothing is read yet."""
        self.count = len(files)
        self._model, self._files = model, files

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """Logits of every set of weights."""
        like = self._model.state_dict()
        for file in self._files:
            mapped = read_weights(file)
            weights = {name: value.to(like[name].dtype) for name, value in mapped.items()}
            yield Pass(torch.func.functional_call(self._model, weights, images))


class KeptWeights:
    """Weights that stay in memory and are copied into the network before every pass."""

    def __init__(self, model: nn.Module, files: list[Path]) -> None:
        """Read all files."""
        self.count = len(files)
        self._model = model
        self._kept = [
            {name: value.clone() for name, value in read_weights(file).items()} for file in files
        ]

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """Logits of every set of weights."""
        for weights in self._kept:
            self._model.load_state_dict(weights)
            yield Pass(self._model(images))


class BatchedWeights:
    """All networks in one vectorised call."""

    def __init__(self, model: nn.Module, files: list[Path]) -> None:
        """Stack the weights in the precision of the network."""
        self.count = len(files)
        self._model = model
        sets = [read_weights(file) for file in files]
        self._stacked = {
            name: torch.stack([weights[name].to(value.dtype) for weights in sets])
            for name, value in model.state_dict().items()
        }

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """Logits of every set of weights."""

        def forward(weights: dict[str, Tensor]) -> Tensor:
            logits: Tensor = torch.func.functional_call(self._model, weights, images)
            return logits

        yield from map(Pass, torch.func.vmap(forward)(self._stacked))


def predictor_of(design: str, files: list[Path]) -> Predictor:
    """The predictor of a design."""
    model = network()
    match design:
        case "softmax":
            return SinglePass(model)
        case "swapped":
            return WeightsPredictor(model, files)
        case "lent":
            return LentWeights(model, files)
        case "kept":
            return KeptWeights(model, files)
        case _:
            return BatchedWeights(model, files)


def measure(design: str, folder: Path) -> None:
    """Print peak memory in bytes and seconds per image of a design."""
    torch.set_num_threads(1)
    files = sorted(folder.glob("*.safetensors"))
    predictor = predictor_of(design, files)
    images = torch.rand(1, 3, *SIZE, generator=torch.Generator().manual_seed(0))
    seconds = best_seconds(lambda: predict_batch(predictor, images))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"peak": peak, "seconds": seconds, "passes": predictor.count}))


def best_seconds(action: Callable[[], object]) -> float:
    """Least processor time of an action, which other programs do not change."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        action()
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Compare the designs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], Path(options.measure[1]))
        return
    with tempfile.TemporaryDirectory() as place:
        for number in range(SNAPSHOTS):
            file = Path(place) / "snapshots" / f"epoch-{number:04d}.safetensors"
            torch.manual_seed(number)
            write_snapshot(file, network().state_dict(), "float16")
        total = sum(file.stat().st_size for file in file.parent.iterdir())
        print(f"{SNAPSHOTS} snapshots: {total / MEGABYTE:.0f} MB on the disk")
        single: dict[str, float] = {}
        for design in options.designs.split(","):
            command = [sys.executable, __file__, "--measure", design, str(file.parent)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
            found = json.loads(done.stdout)
            single = single or found
            print(
                f"{design:8}  peak {found['peak'] / MEGABYTE:5.0f} MB "
                f"({found['peak'] / single['peak']:.2f} x)  "
                f"{1e3 * found['seconds']:6.0f} ms per image "
                f"({found['seconds'] / single['seconds'] / found['passes']:.2f} x per pass)"
            )


if __name__ == "__main__":
    main()
