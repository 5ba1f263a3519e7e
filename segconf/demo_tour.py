"""The pretrained model, then every step on synthetic images: train, evaluate, predict, review."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

from segconf.calibration.calibrate import calibrate
from segconf.comparison.compare import Comparison, compare
from segconf.comparison.tables import write_comparison
from segconf.config.loading import load_config
from segconf.config.schema import ExperimentConfig
from segconf.data.cache import Progress
from segconf.data.datasets.dataset import find_cases
from segconf.errors import SegconfError
from segconf.evaluation.evaluate import EvaluationOptions, evaluate
from segconf.images.io import read_confidence, read_image
from segconf.images.masks import read_mask
from segconf.inference.choice import DEFAULT_MODEL
from segconf.inference.model import load_model
from segconf.inference.predict import PredictionReport, predict
from segconf.inference.sources import find_images
from segconf.metrics.overlap import dice
from segconf.outputs import check_output
from segconf.packaging.browser_page import package_page
from segconf.packaging.web_runtime import cache_file
from segconf.plots.examples import Example, example_figure
from segconf.plots.training_curves import training_curves
from segconf.runs.run_folder import RunFolder
from segconf.synthetic.generation import DemoParameters, write_demo_dataset
from segconf.training.epoch import TrainingListener
from segconf.training.train import train

SOFTMAX_FACTOR = 3
"""Epochs of softmax for one of consistency: it sees only the labeled images, which is cheaper."""
MAX_RISK = 0.01
TEST_IMAGES = "ISIC-2017_Test_v2_Data"
MODEL_PAGE = "segconf.html"
SHOWN_QUANTILES = (0.1, 0.5, 0.9)
"""Of Dice: a bad, a usual and a good case are shown."""


MADE = ("pretrained", "data", "runs", "comparison", "maps", "figure.png", MODEL_PAGE)
"""What the demo leaves behind."""
QUICK = DemoParameters(training=1, validation=0, test=12)
"""Images for the pretrained model; a data set has at least one training image."""


def run_quick_demo(
    out: Path, *, on_progress: Progress, parameters: DemoParameters = QUICK
) -> PredictionReport:
    """Predict a few synthetic images with the pretrained model.

    They are out of distribution for it: it was trained on photographs.

    Args:
        out: folder for everything.
        on_progress: called with a label, what is done, and how much there is.
        parameters: number and size of the synthetic images.
    """
    check_output(out, known=MADE)
    data, maps = out / "pretrained" / "data", out / "pretrained" / "maps"
    write_demo_dataset(
        data,
        parameters,
        on_progress=lambda done, total: on_progress("synthetic images", done, total),
    )
    return predict(
        load_model(DEFAULT_MODEL, device="cpu"),
        find_images([data / TEST_IMAGES], exclude=maps),
        maps,
        on_progress=lambda done, total: on_progress("predictions", done, total),
    )


@dataclass(frozen=True, slots=True)
class DemoResult:
    """Where to look, and how the two methods compare.

    Attributes:
        review_page: of the predictions.
        model_page: segments in the browser; None where it could not be made.
        no_model_page: why not.
    """

    review_page: Path
    model_page: Path | None
    no_model_page: str
    comparison_folder: Path
    figure: Path
    comparison: Comparison


def run_demo(
    out: Path,
    *,
    listener: TrainingListener,
    on_progress: Progress,
    parameters: DemoParameters | None = None,
    config: ExperimentConfig | None = None,
) -> DemoResult:
    """Run every step whose result is not there yet, so that an interrupted demo goes on.

    Args:
        out: folder for everything.
        listener: is told about the trainings.
        on_progress: called with a label, what is done, and how much there is.
        parameters: number and size of the synthetic images.
        config: settings of both trainings but the method; `configs/demo.yaml` when not given.
    """
    data = out / "data"
    write_demo_dataset(
        data,
        parameters or DemoParameters(),
        on_progress=lambda done, total: on_progress("synthetic images", done, total),
    )
    config = config or demo_config()
    runs = {}
    for method in ("softmax", "consistency"):
        runs[method] = out / "runs" / method
        _train(_of_method(config, method), data, runs[method], listener)
        device = config.training.device
        # Both methods as they were trained: a temperature would hide how they differ.
        calibrate(
            runs[method],
            scaling="none",
            max_risk=MAX_RISK,
            device=device,
            on_progress=on_progress,
        )
        evaluate(runs[method], EvaluationOptions("test", device=device), on_progress=on_progress)
    comparison = compare(list(runs.values()))
    write_comparison(comparison, out / "comparison")
    maps = out / "maps"
    images = find_images([data / TEST_IMAGES], exclude=maps)
    predict(
        load_model(runs["consistency"], device=config.training.device),
        images,
        maps,
        on_progress=lambda done, total: on_progress("predictions", done, total),
    )
    figure = out / "figure.png"
    example_figure(_examples(data, maps), figure)
    page, reason = _model_page(runs["consistency"], out / MODEL_PAGE)
    return DemoResult(maps / "review.html", page, reason, out / "comparison", figure, comparison)


def _model_page(run: Path, page: Path) -> tuple[Path | None, str]:
    """The page of a run, without the network; where it cannot be made, the reason instead."""
    if page.is_file():
        return page, ""
    runtime = cache_file()
    if not runtime.is_file():
        command = ["segconf", "package", str(run), "--format", "page", "--out", str(page)]
        return None, f"fetch ONNX Runtime Web first. This does both: {shlex.join(command)}"
    try:
        return package_page(run, page, runtime=runtime).path, ""
    except SegconfError as error:
        return None, str(error)


def _examples(data: Path, maps: Path) -> list[Example]:
    """A bad, a usual and a good case of the test images."""
    examples = []
    for case in find_cases("demo", data).test:
        if case.mask_path is None:
            continue
        examples.append(
            Example(
                case.id,
                read_image(case.image_path).pixels.transpose(1, 2, 0),
                read_mask(case.mask_path),
                read_mask(maps / "masks" / f"{case.id}.png"),
                read_confidence(maps / "confidence" / f"{case.id}.png"),
            )
        )
    examples.sort(key=lambda one: dice(one.prediction > 0, one.truth > 0))
    return [examples[round(share * (len(examples) - 1))] for share in SHOWN_QUANTILES]


def demo_config(overrides: Sequence[str] = ()) -> ExperimentConfig:
    """`configs/demo.yaml`, from the installed package or the checkout, with `key=value` changes."""
    packaged = files("segconf") / "demo.yaml"
    if packaged.is_file():
        with as_file(packaged) as path:
            return load_config(path, overrides=overrides)
    return load_config(Path(__file__).parents[1] / "configs" / "demo.yaml", overrides=overrides)


def _of_method(config: ExperimentConfig, method: str) -> ExperimentConfig:
    epochs = config.training.epochs * (SOFTMAX_FACTOR if method == "softmax" else 1)
    every = SOFTMAX_FACTOR if method == "softmax" else 1
    changes = {"method": method, "epochs": epochs, "validate_every": every}
    return ExperimentConfig.model_validate(
        config.model_dump() | {"training": config.training.model_dump() | changes}
    )


def _train(config: ExperimentConfig, data: Path, folder: Path, listener: TrainingListener) -> None:
    resume = RunFolder(folder).has_begun()
    train(
        config,
        dataset="demo",
        data=data,
        folder=folder,
        resume=resume,
        calibrate=False,
        listener=listener,
    )
    training_curves(folder / "epochs.csv", folder / "training.png")
