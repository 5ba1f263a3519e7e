"""Which pairs to rank: cost and accuracy of a permutation, one random offset, and sampled pairs.

Time is that of forward and backward on the batch of the paper, 96 images of 192 x 256. Accuracy is
the scatter of the loss, and of its gradient, over draws of the pairs on synthetic lesions whose
confidence and consistency are as smooth as those of a network; the truth is the mean over many
permutations. A network sees gradients summed over the reach of its weights, so the gradient is
also judged after averaging over blocks of 16 x 16 and over whole images.

Run: ``python benchmarks/pairs.py``
"""

import argparse
import time

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from segconf.losses.ranking import sampled_ranking_loss
from segconf.losses.ranking_terms import normalize

SIZE = (192, 256)
EPOCHS = 20
CANDIDATES = ("all", "offset", 65_536, 131_072, 262_144, 1_048_576)


def synthetic_batch(images: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Confidence and consistency of a network on central discs, each (B, H, W)."""
    height, width = SIZE
    rows = torch.arange(height).view(1, -1, 1) - height / 2
    columns = torch.arange(width).view(1, 1, -1) - width / 2
    centre = 25 * torch.randn(2, images, 1, 1, generator=generator)
    radius = 30 + 40 * torch.rand(images, 1, 1, generator=generator)
    distance = ((rows - centre[0]) ** 2 + (columns - centre[1]) ** 2).sqrt() - radius  # (B, H, W)
    width_of_doubt = 4 + 16 * torch.rand(images, 1, 1, generator=generator)
    logit = distance / width_of_doubt + smooth_noise(images, generator)  # (B, H, W)
    agreements = torch.zeros(images, *SIZE)
    last = None
    for _ in range(EPOCHS + 1):
        prediction = logit + smooth_noise(images, generator) > 0  # (B, H, W)
        if last is not None:
            agreements += prediction == last
        last = prediction
    confidence = torch.sigmoid((logit + smooth_noise(images, generator)).abs())
    return confidence, agreements / EPOCHS


def smooth_noise(images: int, generator: torch.Generator) -> Tensor:
    """Standard normal noise that changes over about 16 pixels, (B, H, W)."""
    coarse = torch.randn(images, 1, SIZE[0] // 16, SIZE[1] // 16, generator=generator)
    return interpolate(coarse, SIZE, mode="bilinear").squeeze(1)


def estimate(
    confidence: Tensor, target: Tensor, pairs: str | int, generator: torch.Generator
) -> Tensor:
    """Ranking loss over one draw of the pairs."""
    if pairs == "offset":
        # Each pixel against the one a random distance further in the list of all pixels, never
        # less than 1/32 of the list away: copies instead of scattered reads.
        shortest = len(target) // 32
        offset = int(torch.randint(shortest, len(target) - shortest, (), generator=generator))
        target_gap = target - target.roll(-offset)
        confidence_gap = confidence - confidence.roll(-offset)
        return torch.relu(target_gap.abs() - target_gap.sign() * confidence_gap).mean()
    return sampled_ranking_loss(confidence, target, pairs=pairs, generator=generator)


def draw(
    confidence: Tensor, target: Tensor, pairs: str | int, generator: torch.Generator
) -> tuple[float, Tensor]:
    """Loss and gradient, (B, H, W), of one draw of the pairs."""
    leaf = confidence.clone().requires_grad_()
    loss = estimate(leaf.flatten(), target.flatten(), pairs, generator)
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.item(), gradient


def pooled(gradient: Tensor) -> dict[str, Tensor]:
    """The gradient at three scales."""
    return {
        "pixel": gradient,
        "block": avg_pool2d(gradient.unsqueeze(1), 16),
        "image": gradient.mean(dim=(1, 2)),
    }


def measure_time(pairs: str | int, repeats: int) -> float:
    """Least processor time of forward and backward in seconds, on 96 images, one thread."""
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(96, *SIZE, generator=generator)
    confidence = torch.rand(96, *SIZE, generator=generator)
    times = []
    for _ in range(repeats):
        start = time.process_time()
        draw(confidence, target, pairs, generator)
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    """Print one line per way of choosing pairs, for two sizes of the batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--truth", type=int, default=60, help="permutations averaged as the truth")
    parser.add_argument("--batches", type=int, nargs="+", default=[4, 32])
    arguments = parser.parse_args()
    torch.set_num_threads(1)

    print(f"{'pairs':>9} {'ms for 4.7 M pixels':>20}")
    for pairs in CANDIDATES:
        print(f"{pairs:>9} {1000 * measure_time(pairs, 5):20.1f}")

    for images in arguments.batches:
        generator = torch.Generator().manual_seed(images)
        confidence, consistency = synthetic_batch(images, generator)
        target = normalize(consistency)
        truths = [draw(confidence, target, "all", generator) for _ in range(arguments.truth)]
        true_loss = sum(loss for loss, _ in truths) / len(truths)
        true_gradient = pooled(sum((g for _, g in truths), torch.zeros(())) / len(truths))
        print(f"\n{images} images, loss {true_loss:.5f}; error of one draw / size of the truth:")
        print(f"{'pairs':>9} {'bias':>8} {'loss':>8} {'pixel':>8} {'block':>8} {'image':>8}")
        for pairs in CANDIDATES:
            losses = []
            errors = dict.fromkeys(true_gradient, 0.0)
            for _ in range(arguments.draws):
                loss, gradient = draw(confidence, target, pairs, generator)
                losses.append(loss / true_loss - 1)
                for scale, value in pooled(gradient).items():
                    truth = true_gradient[scale]
                    errors[scale] += float((value - truth).norm() ** 2 / truth.norm() ** 2)
            relative = torch.tensor(losses)
            columns = [relative.mean().item(), relative.square().mean().sqrt().item()]
            columns += [(total / arguments.draws) ** 0.5 for total in errors.values()]
            print(f"{pairs:>9} " + " ".join(f"{value:8.4f}" for value in columns))


if __name__ == "__main__":
    main()
