"""What a start from the pretrained model saves on the few images of another clinic.

The clinic is made of ISIC 2017 validation images, which the pretrained model was not trained on,
seen through a simulated camera with a colour cast, less contrast and a soft lens: a folder data set
with a few masks. Each training starts from ImageNet weights, from the encoder of the pretrained
model, or from the whole of it, and is judged on the other images of the clinic.

Run: python benchmarks/fine_tuning.py ISIC OUT
"""

import argparse
import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import PIL.ImageFilter

from segconf.config.loading import load_config
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.training.train import train

CAST = (1.12, 0.92, 0.78)
"""Factors of red, green and blue: yellow light."""
CONTRAST = 0.75
BLUR = 1.5
MASKS = (8, 24)
EPOCHS = (5, 20)
STARTS = {
    "ImageNet encoder": {"model.encoder_weights": "tf_efficientnet_lite0.pth"},
    "encoder of isic2017": {"model.encoder_weights": "isic2017"},
    "all of isic2017": {"model.encoder_weights": "none", "training.start_from": "isic2017"},
}


def main() -> None:
    """Make the clinic, train, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("isic", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    clinic = options.out / "clinic"
    make_clinic(options.isic, clinic)
    print("| masks | epochs | start | Dice | AURC x10^3 | ECE x10^2 |")
    print("|---:|---:|---|---:|---:|---:|")
    for masks in MASKS:
        for epochs in EPOCHS:
            for name, start in STARTS.items():
                found = [
                    measured(clinic, options.out, start, masks, epochs, seed)
                    for seed in range(options.seeds)
                ]
                means, spread = np.mean(found, axis=0), np.std(found, axis=0, ddof=1)
                cells = " | ".join(
                    f"{mean:.{digits}f} ± {deviation:.{digits}f}"
                    for mean, deviation, digits in zip(means, spread, (3, 1, 1), strict=True)
                )
                print(f"| {masks} | {epochs} | {name} | {cells} |", flush=True)


def make_clinic(isic: Path, folder: Path) -> None:
    """Images of the simulated camera with their masks, as `images/` and `masks/`."""
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("images", "masks"):
        (folder / part).mkdir(parents=True)
    for path in sorted((isic / "ISIC-2017_Validation_Data").glob("ISIC_*.jpg")):
        if path.stem.endswith("_superpixels"):
            continue
        with PIL.Image.open(path) as picture:
            soft = picture.convert("RGB").filter(PIL.ImageFilter.GaussianBlur(BLUR))
        pixels = np.asarray(soft, np.float64)
        seen = ((pixels - 128) * CONTRAST + 128) * np.array(CAST)
        image = PIL.Image.fromarray(seen.clip(0, 255).astype(np.uint8))
        image.save(folder / "images" / f"{path.stem}.png")
        mask = isic / "ISIC-2017_Validation_Part1_GroundTruth" / f"{path.stem}_segmentation.png"
        shutil.copyfile(mask, folder / "masks" / f"{path.stem}.png")


def measured(
    clinic: Path, out: Path, start: dict[str, str], masks: int, epochs: int, seed: int
) -> tuple[float, float, float]:
    """Mean Dice, AURC and ECE on the test images of the clinic after a training."""
    values = {
        "data.size": [128, 160],
        "data.labeled": masks,
        "data.test_fraction": 0.6,
        "model.encoder": "tu-tf_efficientnet_lite0",
        "training.method": "softmax",
        "training.epochs": epochs,
        "training.batch_labeled": 4,
        "training.learning_rate": 3e-4,
        "training.seed": seed,
        "training.ood_detector": False,
        "training.device": "cpu",
        "training.validate_every": epochs,
        **start,
    }
    run = out / "run"
    shutil.rmtree(run, ignore_errors=True)
    config = load_config(flags=values)
    train(config, dataset=str(clinic), folder=run, calibrate=False)
    found = evaluate(run, EvaluationOptions("test"))
    if found is None:
        raise SystemExit("only the first process measures")
    metrics = found.report.metrics["all"]["strict"]
    return found.report.per_image["dice"], 1000 * metrics["aurc"], 100 * metrics["ece"]


if __name__ == "__main__":
    main()
