"""What `metrics.json` says about the run that was evaluated."""

from segconf.inference.torch_model import TorchModel
from segconf.runs.epochs import read_progress, training_seconds
from segconf.runs.run_folder import RunFolder


def about_run(
    run: RunFolder, model: TorchModel, *, split: str, weights: str, grid: str | None = None
) -> dict[str, object]:
    """The run, its data and its cost.

    Args:
        run: its folder.
        model: its network, after the evaluation.
        split: of the images.
        weights: best or last.
        grid: on which it was evaluated; that of the network when not given.
    """
    config, used = model.config, run.data()
    height, width = config.data.size
    progress = read_progress(run.path)  # of every network
    return {
        "run": run.path.name,
        "weights": weights,
        "weights_sha256": model.weights_sha256,
        "method": config.training.method,
        "labeled": used.label_count,
        "labeled_unit": used.unit,
        "seed": config.training.seed,
        "encoder": config.model.encoder,
        "dataset": used.dataset,
        "task": config.data.task,
        "split": split,
        "grid": grid or f"{height} x {width}",
        "scaling": model.scaling,
        "temperature": model.temperature,
        "training_seconds": training_seconds(run.path),
        "training_epochs": [one.epochs for one in progress],
        "best_epochs": [one.best_epoch for one in progress],
        "inference_passes": model.predictor.count,
        "inference_seconds_per_image": model.batches.seconds_per_image,
        "protocol": "strict",
        "null": "a value that is not defined",
    }
