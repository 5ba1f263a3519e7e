"""Curves for TensorBoard, where it is installed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from segconf.runs.epochs import EpochSummary


@contextmanager
def open_events(
    folder: Path, epoch: int, *, enabled: bool
) -> Iterator[Callable[[EpochSummary], None]]:
    """A function that writes the numbers of an epoch; it does nothing without TensorBoard.

    Args:
        folder: `events` of a run.
        epoch: the first that will be written; curves of an earlier attempt end before it.
        enabled: False on the processes that write nothing.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        enabled = False
    if not enabled:
        yield lambda _summary: None
        return
    with SummaryWriter(str(folder), purge_step=epoch + 1) as writer:

        def write(summary: EpochSummary) -> None:
            for name, value in _scalars(summary).items():
                writer.add_scalar(name, value, summary.epoch + 1)
            writer.flush()

        yield write


def _scalars(summary: EpochSummary) -> dict[str, float]:
    scalars = {f"loss/{name}": value for name, value in summary.terms.items()}
    for group, scores in (
        ("validation", summary.scores),
        ("validation_ema", summary.ema_scores),
    ):
        if scores is not None:
            scalars |= {f"{group}/{name}": value for name, value in asdict(scores).items()}
    return scalars
