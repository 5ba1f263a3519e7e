"""Which model a prediction uses: the one that was named, the newest run, or the pretrained one."""

from dataclasses import dataclass
from pathlib import Path

from segconf.errors import CheckpointError
from segconf.models.pretrained import find_model, is_pretrained, pretrained_folder, pretrained_names
from segconf.runs.run_folder import newest_run

DEFAULT_MODEL = "isic2017"
"""Pretrained model for predictions where no run has finished."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model, and why it is this one.

    Attributes:
        path: run folder or weights file.
        reason: in words, for a person who did not choose it.
    """

    path: Path
    reason: str

    @property
    def name(self) -> str:
        """How the model is called: a pretrained one by its name, others by their path."""
        return f"pretrained model {self.path.name}" if is_pretrained(self.path) else str(self.path)


def choose_model(given: Path | str | None = None, *, runs: Path = Path("runs")) -> ModelChoice:
    """The model that was asked for, else the newest finished run, else the pretrained model.

    Args:
        given: run folder, weights file or name of a pretrained model.
        runs: folder that is searched for a finished run.

    Raises:
        CheckpointError: what was given does not exist, or there is no model at all.
    """
    if given is not None:
        return ModelChoice(find_model(given), "as asked for")
    try:
        return ModelChoice(newest_run(runs), f"the newest finished run under {runs}")
    except CheckpointError:
        if DEFAULT_MODEL not in pretrained_names():
            raise
        return ModelChoice(pretrained_folder(DEFAULT_MODEL), f"no finished run under {runs}")
