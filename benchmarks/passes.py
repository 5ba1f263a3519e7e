"""What MC dropout costs: the encoder once and 50 decoders, against 50 times the whole network.

Both give the same logits, which is checked. The time of a single, deterministic pass is printed
beside, and how long the thinned decoders take to prepare. One thread, one image at a time, and the
time of the processor, so that other work on the machine matters less.

Run: ``python benchmarks/passes.py``
"""

import argparse
import time
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from segconf.config.schema import ModelConfig
from segconf.inference.predictors import DropoutPredictor, Pass, SinglePass, predict_batch
from segconf.methods.method import methods

NETWORKS = {
    "UNet-ResNet34, 192 x 256": ("resnet34", (192, 256)),
    "UNet-EfficientNet-Lite0, 96 x 128": ("tu-tf_efficientnet_lite0", (96, 128)),
}


class WholePasses:
    """The obvious way: the encoder again in every pass."""

    def __init__(self, predictor: DropoutPredictor) -> None:
        """Repeat its passes with the same channels dropped."""
        self.count = predictor.count
        self._predictor = predictor

    def __call__(self, images: Tensor) -> Iterator[Pass]:
        """Logits of the passes."""
        own = self._predictor
        for decoder in own.decoders:
            yield Pass(own.head(decoder(own.encoder(images))))


def seconds(work: Callable[[], object], rounds: int) -> float:
    """Shortest time of some rounds, after one that does not count."""
    work()
    times: list[float] = []
    for _ in range(rounds):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def untrained(encoder: str) -> nn.Module:
    """A network with random weights and dropout."""
    torch.manual_seed(0)
    config = ModelConfig(encoder=encoder, encoder_weights="none")
    return methods.get("mcdropout").build(config).eval()


def compare(name: str, encoder: str, size: tuple[int, int], count: int, rounds: int) -> None:
    """Time both ways and print the ratio."""
    network = untrained(encoder)
    images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(1))
    start = time.process_time()
    decoders = DropoutPredictor(network, count)
    prepared = time.process_time() - start
    whole, single = WholePasses(decoders), SinglePass(network)
    if not torch.equal(
        predict_batch(decoders, images).logits,
        predict_batch(whole, images).logits,
    ):
        raise SystemExit(f"{name}: the two ways do not agree")
    taken = {
        label: seconds(lambda way=way: predict_batch(way, images), rounds)
        for label, way in (
            ("one deterministic pass", single),
            (f"{count} decoders, one encoder", decoders),
            (f"{count} whole networks", whole),
        )
    }
    print(f"{name} (thinned decoders prepared in {prepared:.2f} s)")
    for label, value in taken.items():
        print(f"  {label:<26} {1000 * value:8.1f} ms per image")
    _, ours, obvious = taken.values()
    print(f"  the encoder once: {obvious / ours:.2f} times as fast")


def main() -> None:
    """Compare on both networks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--passes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name, (encoder, size) in NETWORKS.items():
        compare(name, encoder, size, arguments.passes, arguments.rounds)


if __name__ == "__main__":
    main()
