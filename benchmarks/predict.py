"""Images per second of `predict` against a plain loop, and its memory.

The plain loop decodes with pillow, runs the eager model image by image, resizes the logits with
torch, blends the overlay in numpy and writes PNG files with pillow at its default level. Both
write masks, confidence maps and overlays of the same content, which is checked; `predict` also
writes the table and the files of the review page. Rounds alternate and the fastest one counts.

Run: ``python benchmarks/predict.py --images FOLDER --checkpoint RUN``
     ``python benchmarks/predict.py --images FOLDER --checkpoint RUN --onnx FILE``: ONNX Runtime too
     ``python benchmarks/predict.py --start``: the whole command on one small image
     ``python benchmarks/predict.py --native``: one photograph of 3000 x 2000 pixels
     ``python benchmarks/predict.py --memory 500``: resident memory along 500 images
     ``python benchmarks/predict.py --memory 20000 --size 64 64``: the same with many small ones
     ``python benchmarks/predict.py --huge 20000``: peak memory of tiles on a square image
"""

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import PIL.Image
import torch
from torch import Tensor, nn

from segconf.checkpoints.weights import save_checkpoint
from segconf.config.schema import ExperimentConfig
from segconf.inference.model import Model, load_model
from segconf.inference.pipeline import PredictOptions
from segconf.inference.predict import predict
from segconf.inference.predictors import SinglePass
from segconf.inference.sources import find_images
from segconf.models.encoders import encoder_normalization
from segconf.models.unet import build_unet
from segconf.overlays.layers import LOW_COLOUR, MIDDLE_COLOUR, draw_contour
from segconf.overlays.overlay import _with_legend
from segconf.overlays.view import View

MEGABYTE = 1e6


def untrained(folder: Path, size: tuple[int, int]) -> Path:
    """A checkpoint without training, for the time and the memory alone."""
    config = ExperimentConfig.model_validate(
        {"model": {"encoder": "resnet18", "encoder_weights": "none"}, "data": {"size": size}}
    )
    torch.manual_seed(0)
    weights = build_unet(config.model, pretrained=False).state_dict()
    save_checkpoint(folder / "best.safetensors", weights, config)
    return folder / "best.safetensors"


def write_images(folder: Path, count: int, size: tuple[int, int]) -> None:
    """Smooth, noisy JPEG pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    coarse = PIL.Image.fromarray(rng.integers(60, 220, (12, 16, 3), np.uint8))
    smooth = np.asarray(coarse.resize(size[::-1], PIL.Image.Resampling.BICUBIC), np.int16)
    noisy = smooth + rng.integers(-8, 8, smooth.shape, np.int16)
    PIL.Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(folder / "0.jpg", quality=92)
    content = (folder / "0.jpg").read_bytes()
    for number in range(1, count):
        (folder / f"{number}.jpg").write_bytes(content)


def plain_loop(model: Model, images: list[Path], out: Path) -> None:
    """What one writes first."""
    for name in ("masks", "confidence", "overlays"):
        (out / name).mkdir(parents=True)
    config = model.config
    mean, std = (
        torch.tensor(values).reshape(3, 1, 1)
        for values in encoder_normalization(config.model.encoder, 3)
    )
    height, width = config.data.size
    for path in images:
        with PIL.Image.open(path) as file:
            picture = file.convert("RGB")
        small = picture.resize((width, height), PIL.Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(small)).permute(2, 0, 1).float() / 255
        with torch.no_grad():
            logits = model.checkpoint.model(((pixels - mean) / std)[None])
            logits = nn.functional.interpolate(logits, picture.size[::-1], mode="bilinear")
            probabilities = (logits / model.temperature).softmax(dim=1)
            confidence, mask = (values[0].numpy() for values in probabilities.max(dim=1))
        name = f"{path.stem}.png"
        PIL.Image.fromarray(mask.astype(np.uint8)).save(out / "masks" / name)
        levels = np.rint(confidence * 65535).astype(np.uint16)
        PIL.Image.fromarray(levels).save(out / "confidence" / name)
        blended = plain_overlay(model, picture, mask, confidence)
        PIL.Image.fromarray(blended).save(out / "overlays" / name)


def plain_overlay(
    model: Model, picture: PIL.Image.Image, mask: np.ndarray, confidence: np.ndarray
) -> np.ndarray:
    """The contour style, blended as a float picture."""
    scale = model.scale
    rows, columns = View().size(picture.height, picture.width)
    shown = picture.resize((columns, rows), PIL.Image.Resampling.BOX)
    nearest = PIL.Image.Resampling.NEAREST
    sure = np.array(PIL.Image.fromarray(confidence).resize((columns, rows), nearest))
    labels = np.array(PIL.Image.fromarray(mask.astype(np.uint8)).resize((columns, rows), nearest))
    low = (sure < scale.striped)[..., None]
    middle = (sure < scale.shaded)[..., None] & ~low
    line = max(1, round(max(rows, columns) / 640))
    row, column = np.mgrid[:rows, :columns]
    striped = ((row + column) % (10 * line) < 3 * line)[..., None]
    opacity = 0.75 * (low & striped) + 0.2 * (low & ~striped) + 0.22 * middle
    colour = np.where(low, LOW_COLOUR, MIDDLE_COLOUR)
    blended = np.rint(np.asarray(shown) * (1 - opacity) + colour * opacity).astype(np.uint8)
    draw_contour(blended, labels)
    return _with_legend(blended, "contour", scale, ())


def check_same(plain: Path, ours: Path) -> None:
    """Stop when the two wrote different things."""
    for path in sorted((plain / "masks").iterdir()):
        pixels = {
            (kind, folder.name): np.asarray(PIL.Image.open(folder / kind / path.name), np.int32)
            for kind in ("masks", "confidence", "overlays")
            for folder in (plain, ours)
        }
        off = [
            np.abs(pixels[kind, plain.name] - pixels[kind, ours.name])
            for kind in ("masks", "confidence", "overlays")
        ]
        # Where two classes tie, rounding decides; averaging while shrinking rounds as well.
        if off[0].mean() > 1e-4 or off[1].mean() > 20 or off[2].mean() > 1:
            raise SystemExit(f"{path.name}: contents differ by {[float(o.mean()) for o in off]}")


def compare(model: Model, images: Path, rounds: int, packaged: Model | None) -> None:
    """Time both, and a packaged network where there is one, and print the ratios."""
    sources = find_images([images])
    paths = [source.path for source in sources.items]
    best = dict.fromkeys(("plain", "ours", "onnx")[: 3 if packaged else 2], (math.inf, math.inf))
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(rounds):
            plain, ours = Path(scratch, f"plain{number}"), Path(scratch, f"ours{number}")
            for name, work in (
                ("plain", partial(plain_loop, model, paths, plain)),
                ("ours", partial(predict, model, sources, ours)),
                ("onnx", partial(predict, packaged, sources, Path(scratch, f"onnx{number}"))),
            )[: len(best)]:
                start, busy = time.perf_counter(), time.process_time()
                work()
                taken = time.perf_counter() - start, time.process_time() - busy
                best[name] = min(best[name], taken)
            if number == 0:
                check_same(plain, ours)
                print_sizes(plain, ours)
    for name, (seconds, busy) in best.items():
        rate = len(paths) / seconds
        print(f"{name:>6}: {rate:6.2f} images/s ({seconds:.1f} s, {busy:.1f} s of processors)")
    print(f"predict is {best['plain'][0] / best['ours'][0]:.2f} times as fast")
    if packaged is not None:
        wall, busy = (ours / onnx for ours, onnx in zip(best["ours"], best["onnx"], strict=True))
        print(f"ONNX Runtime is {wall:.2f} times as fast again, {busy:.2f} by time of processors")


def print_sizes(*folders: Path) -> None:
    """Bytes of masks, maps and overlays."""
    for folder in folders:
        sizes = {
            kind: sum(path.stat().st_size for path in (folder / kind).iterdir()) / MEGABYTE
            for kind in ("masks", "confidence", "overlays")
        }
        print(folder.name, {kind: f"{size:.1f} MB" for kind, size in sizes.items()})


def status(field: str) -> float:
    """VmRSS (resident memory) or VmHWM (its peak) in MB (Linux)."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    raise RuntimeError(f"no {field} in /proc/self/status: this benchmark needs Linux")


def memory_along(model: Model, count: int, size: tuple[int, int], scratch: Path) -> None:
    """Print the time to the first result, and the resident memory while many are predicted."""
    write_images(scratch / "images", count, size)
    steps = sorted({1, *(math.ceil(count * part) for part in (0.1, 0.25, 0.5, 0.75, 1))})
    start, busy = time.perf_counter(), time.process_time()

    def report(what: str) -> None:
        seconds, processor = time.perf_counter() - start, time.process_time() - busy
        used = f"{seconds:8.2f} s, {processor:8.2f} s of the processor"
        print(f"{what:>22}: {used}, {status('VmRSS'):5.0f} MB", flush=True)

    def note(done: int, _total: int) -> None:
        if steps and done >= steps[0]:
            report(f"{done} images predicted")
            while steps and done >= steps[0]:
                steps.pop(0)

    sources = find_images([scratch / "images"])
    report(f"{count} images found")
    predict(model, sources, scratch / "maps", on_progress=note)
    report("table and page written")
    print(f"peak {status('VmHWM'):.0f} MB; images of {size[0]} x {size[1]}")


def timed_command(*arguments: str) -> tuple[float, float]:
    """Wall and processor seconds of a process on one processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603
    seconds = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, busy


def start_up(checkpoint: Path, rounds: int, scratch: Path) -> None:
    """Time the whole command on one small image, and the import of PyTorch that is part of it."""
    write_images(scratch / "small", 1, (96, 128))
    best = {"segconf predict": (math.inf, math.inf), "import torch": (math.inf, math.inf)}
    for number in range(rounds):
        command = ["-m", "segconf_cli", "predict", str(scratch / "small"), "--checkpoint"]
        command += [str(checkpoint), "--device", "cpu", "--out", str(scratch / f"start{number}")]
        best["segconf predict"] = min(best["segconf predict"], timed_command(*command))
        best["import torch"] = min(best["import torch"], timed_command("-c", "import torch"))
    for name, (seconds, busy) in best.items():
        print(f"{name:>16}: {seconds:5.2f} s ({busy:.2f} s of the processor)")
    ratio = best["segconf predict"][1] / best["import torch"][1]
    print(f"the command takes {ratio:.2f} times the processor time of the import of PyTorch")


def native_image(model: Model, rounds: int, scratch: Path) -> None:
    """Time one photograph from the file to all of its results, against the plain loop."""
    write_images(scratch / "native", 1, (2000, 3000))
    (path,) = (scratch / "native").iterdir()
    best = {"plain": (math.inf, math.inf), "ours": (math.inf, math.inf)}
    for number in range(rounds + 1):
        for name, work in (
            ("plain", partial(plain_loop, model, [path], scratch / f"plain{number}")),
            ("ours", partial(predict, model, path, scratch / f"ours{number}")),
        ):
            start, busy = time.perf_counter(), time.process_time()
            work()
            if number:  # the first round warms both up
                taken = time.perf_counter() - start, time.process_time() - busy
                best[name] = min(best[name], taken)
    for name, (seconds, busy) in best.items():
        print(f"{name:>6}: {seconds:.2f} s for 3000 x 2000 pixels ({busy:.2f} s of the processor)")
    print(f"predict is {best['plain'][1] / best['ours'][1]:.2f} times as fast")


class Grey(nn.Module):
    """Two classes by brightness: a network that costs nothing."""

    def forward(self, images: Tensor) -> Tensor:
        """(B, 3, h, w) to (B, 2, h, w)."""
        grey = images.mean(dim=1, keepdim=True)
        return torch.cat([-grey, grey], dim=1)


def huge_tiles(model: Model, side: int, scratch: Path) -> None:
    """Print the peak memory of tiles on a square image, with a network that costs nothing."""
    write_images(scratch / "images", 1, (side, side))
    model.predictor = SinglePass(Grey())
    before = status("VmRSS")
    # Making the picture took more memory than predicting it: forget that peak.
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    start = time.perf_counter()
    predict(
        model,
        find_images([scratch / "images"]),
        scratch / "maps",
        options=PredictOptions(tile=True),
    )
    print(f"{side} x {side} in tiles: {time.perf_counter() - start:.0f} s")
    print(f"resident before {before:.0f} MB, peak {status('VmHWM'):.0f} MB")
    floats = side * side * 4 * 2 / MEGABYTE
    print(f"(float logits of the whole image alone would be {floats:.0f} MB)")


def main() -> None:
    """Run what the arguments ask for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--onnx", type=Path, metavar="FILE")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--start", action="store_true")
    parser.add_argument("--native", action="store_true")
    parser.add_argument("--memory", type=int, metavar="COUNT")
    parser.add_argument("--size", type=int, nargs=2, default=(768, 1024), metavar=("H", "W"))
    parser.add_argument("--huge", type=int, metavar="SIDE")
    arguments = parser.parse_args()
    if (arguments.start or arguments.native) and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one processor
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        if arguments.start:
            checkpoint = arguments.checkpoint or untrained(scratch, (96, 128))
            start_up(checkpoint, arguments.rounds, scratch)
            return
        model = load_model(
            arguments.checkpoint or untrained(scratch, (512, 512) if arguments.huge else (96, 128)),
            device="cpu",
        )
        # The plain loop draws no lines that keep a promise.
        model.calibration = model.calibration.model_copy(update={"contours": ()})
        if arguments.native:
            native_image(model, arguments.rounds, scratch)
        elif arguments.memory:
            memory_along(model, arguments.memory, tuple(arguments.size), scratch)
        elif arguments.huge:
            huge_tiles(model, arguments.huge, scratch)
        else:
            if arguments.images is None:
                write_images(scratch / "images", 12, (1936, 2592))
            packaged = load_model(arguments.onnx, device="cpu") if arguments.onnx else None
            compare(model, arguments.images or scratch / "images", arguments.rounds, packaged)


if __name__ == "__main__":
    main()
