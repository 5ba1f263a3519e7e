"""From a finished training to the folder of a pretrained model, and what that model reaches.

The weights are halved first; detector and calibration are fitted for the halved weights, on the
validation images. The test images only judge.

Run: segconf train isic --data ISIC --config configs/pretrained.yaml --out RUN
     python benchmarks/pretrained.py RUN --native NATIVE --out segconf/models/weights/isic2017
"""

import argparse
import csv
import json
import shutil
from pathlib import Path

import numpy as np
import torch

from segconf.checkpoints.weight_files import halved, read_tensors, write_tensors
from segconf.data.datasets.dataset import FindOptions, find_cases
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.evaluation.score import score
from segconf.inference.model import load_model
from segconf.inference.predict import predict
from segconf.metrics.bootstrap import draw_units, mean_interval
from segconf.models.pretrained import DESCRIPTION, Description, Measured, Quality
from segconf.processes import joined
from segconf.results.rows import REFER
from segconf.runs.run_folder import RunFolder
from segconf.training.epoch import TrainingListener
from segconf.training.finishing import finish_run
from segconf.training.labels import label

KEPT = ("config.yaml", "split.json", "environment.json", "epochs.csv", "timing.csv")
SHIPPED = ("best.safetensors", "calibration.json", "ood.safetensors")
TEST_IMAGES = "ISIC-2017_Test_v2_Data"


def main() -> None:
    """Halve, fit, measure, and write the folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--native", type=Path, help="folder with images/ and masks/ at native size")
    parser.add_argument("--out", type=Path, help="folder of the pretrained model")
    options = parser.parse_args()
    half = halved_run(options.run)
    fit(half)
    for split in ("val", "test"):
        evaluate(half, EvaluationOptions(split))
        show(half, split)
    referred = referred_fraction(half)
    print(f"referred: {referred:.1%} of the test images")
    if options.native:
        show_native(half, options.native)
    if options.out:
        ship(half, options.out, referred)


def halved_run(run: Path) -> Path:
    """A copy of what a prediction and a calibration need, with weights in half precision."""
    half = run.with_name(f"{run.name}-half")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    for name in KEPT:
        shutil.copyfile(run / name, half / name)
    tensors, metadata = read_tensors(run / "best.safetensors", way_out="Train first.")
    small = {name: halved(value) for name, value in tensors.items()}
    write_tensors(half / "best.safetensors", small, metadata | {"temperature": "1.0"})
    return half


def fit(path: Path) -> None:
    """Detector and calibration of the halved weights, as the end of a training fits them."""
    run = RunFolder(path)
    config, data = run.config(), run.data()
    options = FindOptions.of(config.data)
    found = find_cases(data.dataset, Path(data.data) if data.data else None, options=options)
    _, split = label(found, config, run)
    with joined(torch.device("cpu")) as group:
        finish_run(config, run, split, group, TrainingListener(), calibrate=True)


def evaluated(run: Path, split: str) -> tuple[dict[str, dict[str, float]], dict[str, Measured]]:
    """Content of `metrics.json`, and means with intervals over images."""
    folder = run / "evaluation" / split
    content = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    with (folder / "cases.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for name, column in (("dice", "dice"), ("jaccard", "iou")):
        values = np.array([float(row[column] or "nan") for row in rows])
        weights = draw_units([row["group"] for row in rows], torch.Generator().manual_seed(0))
        interval = mean_interval(values, weights)
        found[name] = Measured(value=float(np.nanmean(values)), interval=interval)
    for name in ("miou", "aurc", "ece"):
        value = content["metrics"]["all"]["strict"][name]
        found[name] = Measured(value=value, interval=tuple(content["intervals"][name]))
    return content, found


def show(run: Path, split: str) -> None:
    """Print a row of the table, and what was promised and kept."""
    content, found = evaluated(run, split)
    numbers = " | ".join(
        f"{scale * one.value:.{digits}f} ({scale * one.interval[0]:.{digits}f} to "
        f"{scale * one.interval[1]:.{digits}f})"
        for one, scale, digits in (
            (found["jaccard"], 1, 3),
            (found["dice"], 1, 3),
            (found["miou"], 1, 3),
            (found["aurc"], 1000, 2),
            (found["ece"], 100, 2),
        )
    )
    print(f"| {split} ({content['images']}) | {numbers} |")
    print("threshold", content["threshold"])
    print("guarantees", content.get("guarantees"))


def referred_fraction(run: Path) -> float:
    """Fraction of the test images that `predict` refers."""
    data = RunFolder(run).data().data
    if data is None:
        raise SystemExit("the run does not say where its data set lies")
    maps = run.with_name(f"{run.name}-maps")
    shutil.rmtree(maps, ignore_errors=True)
    report = predict(load_model(run), Path(data) / TEST_IMAGES, maps)
    return sum(row.severity == REFER for row in report.rows) / len(report.rows)


def show_native(run: Path, native: Path) -> None:
    """Print the figures at native size."""
    maps = run.with_name(f"{run.name}-native")
    shutil.rmtree(maps, ignore_errors=True)
    report = predict(load_model(run), native / "images", maps)
    flagged = [f"{row.case}: {row.flags[0]}" for row in report.rows if row.flags]
    print(f"native: {len(report.rows)} images, flags: {flagged}")
    found = score(maps, native / "masks").report
    metrics, means = found.metrics["all"]["strict"], found.per_image
    print(
        f"native: Jaccard {means['iou']:.3f}, Dice {means['dice']:.3f}, "
        f"mIoU {metrics['miou']:.3f}, AURC {1000 * metrics['aurc']:.2f}, "
        f"ECE {100 * metrics['ece']:.2f}"
    )


def ship(run: Path, out: Path, referred: float) -> None:
    """Write the files of the pretrained model; its card is written by hand."""
    model = load_model(run)
    content, found = evaluated(run, "test")
    out.mkdir(parents=True, exist_ok=True)
    for name in SHIPPED:
        shutil.copyfile(run / name, out / name)
    about = Description(
        task="segmentation",
        summary="skin lesions in dermoscopy images",
        size=model.config.data.size,
        encoder=model.config.model.encoder,
        method=model.config.training.method,
        class_names=("background", "skin lesion"),
        licence="MIT (encoder: Apache-2.0, data: CC0; see NOTICE)",
        trained_on=f"ISIC 2017, {content['labeled']} training images",
        weights_sha256=model.weights_sha256,
        quality=Quality(
            images=content["images"],
            on=f"{content['images']} held-out images of ISIC 2017",
            dice=found["dice"],
            jaccard=found["jaccard"],
            aurc=found["aurc"],
            ece=found["ece"],
        ),
        referred=referred,
    )
    (out / DESCRIPTION).write_text(about.model_dump_json(indent=1) + "\n", encoding="utf-8")
    print(f"{out}: {sum(f.stat().st_size for f in out.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
