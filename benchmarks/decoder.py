"""Our UNet, which convolves upsampled maps without writing them, against the library's.

Both have the same weights and give the same logits up to rounding, which is checked. The steps of
the two alternate, so that other work on the machine slows both alike; the shortest of each counts.

Run: ``python benchmarks/decoder.py``
"""

import argparse
import time
from collections.abc import Callable

import segmentation_models_pytorch as smp
import torch
from torch import Tensor, nn

from segconf.config.schema import ModelConfig
from segconf.models.unet import build_unet

CASES = (
    ("resnet34", (192, 256), 6),
    ("resnet34", (192, 256), 1),
    ("tu-tf_efficientnet_lite0", (96, 128), 12),
    ("tu-tf_efficientnet_lite0", (64, 96), 4),
)
TOLERANCE = 1e-4
"""Of the largest logit."""


def train(network: nn.Module, images: Tensor) -> None:
    """Forward and backward."""
    network.train()
    network(images).square().mean().backward()
    network.zero_grad(set_to_none=True)


@torch.no_grad()
def predict(network: nn.Module, images: Tensor) -> None:
    """Forward only."""
    network.eval()
    network(images)


def seconds(
    work: Callable[[nn.Module, Tensor], None],
    networks: dict[str, nn.Module],
    images: Tensor,
    rounds: int,
) -> dict[str, float]:
    """Shortest time of each network, after a round that does not count."""
    best = dict.fromkeys(networks, float("inf"))
    for number in range(rounds + 1):
        for name, network in networks.items():
            start = time.perf_counter()
            work(network, images)
            if number:
                best[name] = min(best[name], time.perf_counter() - start)
    return best


def compare(encoder: str, size: tuple[int, int], batch: int, rounds: int) -> None:
    """Check that the logits agree, time both, and print the ratios."""
    torch.manual_seed(0)
    ours = build_unet(ModelConfig(encoder=encoder, encoder_weights="none"))
    library = smp.Unet(encoder, encoder_weights=None, classes=2)
    library.load_state_dict(ours.state_dict())
    networks = {
        name: network.to(memory_format=torch.channels_last)
        for name, network in (("ours", ours), ("library", library))
    }
    images = torch.randn(batch, 3, *size).to(memory_format=torch.channels_last)
    with torch.no_grad():
        said, wanted = (network.eval()(images) for network in networks.values())
    if (said - wanted).abs().max() > TOLERANCE * wanted.abs().max():
        raise SystemExit(f"{encoder}: the networks do not agree")
    print(f"{encoder}, {size[0]} x {size[1]}, batch of {batch}")
    for label, work in (("forward and backward", train), ("forward", predict)):
        times = seconds(work, networks, images, rounds)
        ratio = times["ours"] / times["library"]
        print(
            f"  {label:20}  ours {1000 * times['ours']:6.0f} ms   "
            f"library {1000 * times['library']:6.0f} ms   ratio {ratio:.2f}"
        )


def main() -> None:
    """Compare on the networks and grids of the configurations."""
    parser = argparse.ArgumentParser(description="Our decoder against the library's.")
    parser.add_argument("--rounds", type=int, default=12)
    rounds = parser.parse_args().rounds
    print(f"{torch.get_num_threads()} threads")
    for encoder, size, batch in CASES:
        compare(encoder, size, batch, rounds)


if __name__ == "__main__":
    main()
