"""Sections of the experiment file: names, types, ranges and defaults."""

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from segconf.images.types import DEFAULT_MAX_PIXELS

Count = Annotated[int, Strict(), Field(ge=1)]
NaturalNumber = Annotated[int, Strict(), Field(ge=0)]
Number = Annotated[float, Strict()]
Weight = Annotated[Number, Field(ge=0, allow_inf_nan=False)]
Share = Annotated[Number, Field(ge=0, lt=1)]
Probability = Annotated[Number, Field(ge=0, le=1)]
Flag = Annotated[bool, Strict()]


def _divisible_by_32(side: int) -> int:
    if side % 32:
        below, above = max(32, side // 32 * 32), math.ceil(side / 32) * 32
        nearest = f"{above}" if below == above else f"{below} or {above}"
        raise ValueError(f"must be divisible by 32 (five poolings of the network): take {nearest}")
    return side


Side = Annotated[int, Strict(), Field(ge=32), AfterValidator(_divisible_by_32)]


class Section(BaseModel):
    """Frozen and closed: an unknown key is a mistake, and a run cannot change its settings."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DataConfig(Section):
    """Which images are used, and on which grid."""

    size: tuple[Side, Side] = (192, 256)
    """Height and width of the network's grid."""
    labeled: Count | None = None
    """How many training masks may be used; all of them when not given."""
    labeled_list: Path | None = None
    """Ids of the images whose masks may be used: .txt, .csv, .json or .npy."""
    split_seed: NaturalNumber | None = None
    """Decides which masks may be used; `training.seed` when not given."""
    resume_labels: Path | None = None
    """List that `segconf query` wrote: its images, and those that the queried run had labeled."""
    accept_as_labels: Path | None = None
    """Decisions of the review page: what was accepted there is used like a mask."""
    maps: Path | None = None
    """Prediction folder that the decisions are about."""
    validation_share: Share = 0.15
    """Part of a folder data set without `val/` that is kept for validation."""
    test_share: Share = 0.15
    """Part of a folder data set without `test/` that is kept for testing."""
    ignore_255: Flag = False
    """With more than two classes, mask value 255 means "not annotated"."""
    intensity_window: tuple[Number, Number] | None = None
    """NIfTI intensities shown as black and white; percentiles 0.5 and 99.5 when not given."""
    max_pixels: Count = DEFAULT_MAX_PIXELS
    """Larger pictures are refused."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        choices = (self.labeled, self.labeled_list, self.resume_labels)
        if sum(choice is not None for choice in choices) > 1:
            raise ValueError(
                "labeled, labeled_list and resume_labels exclude each other: give one of them"
            )
        if (self.accept_as_labels is None) != (self.maps is None):
            raise ValueError(
                "accept_as_labels and maps go together: the decisions, and the prediction folder "
                "they are about"
            )
        if self.validation_share + self.test_share >= 1:
            raise ValueError("validation_share and test_share leave no image for training")
        if self.intensity_window and self.intensity_window[0] >= self.intensity_window[1]:
            raise ValueError("intensity_window must be [low, high] with low < high")
        return self


class AugmentationConfig(Section):
    """Random views of the labeled images; the plain views are never augmented."""

    scale: tuple[Weight, Weight] = (0.7, 1.5)
    """Smallest and largest zoom before the random crop."""
    horizontal_flip: Probability = 0.5
    vertical_flip: Probability = 0.5

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError("scale must be [smallest, largest] with 0 < smallest <= largest")
        return self


class ModelConfig(Section):
    """The network."""

    encoder: str = "resnet34"
    encoder_weights: str = "imagenet"
    """`imagenet` (fetched from the hub), `none`, or a file (.pth or .safetensors)."""
    channels: Annotated[int, Strict(), Field(ge=1, le=64)] = 3
    classes: Annotated[int, Strict(), Field(ge=2, le=255)] = 2
    dropout: Share = 0.2
    """Probability that a channel of the decoder is dropped, with `mcdropout` and `aleatoric`."""


class LossConfig(Section):
    """Weights of the ranking terms, and how pixels are paired."""

    target: Literal["ranking", "pointwise"] = "ranking"
    """Order confidence like correctness and consistency, or pull it to their values (L1)."""

    correctness_weight: Weight = 0.5
    consistency_weight: Weight = 0.15
    pairs: Literal["all"] | Count = 262_144
    """A random cycle through all pixels, or a number of random pairs: noisier, but far cheaper."""
    normalization: Literal["separate", "joint"] = "separate"
    pair_scope: Literal["group", "batch"] = "group"
    noise_samples: Count = 10
    """Draws of the logits in the likelihood of `aleatoric`."""


class TrainingConfig(Section):
    """Schedule of the run."""

    method: Literal[
        "softmax", "crl", "consistency", "aes", "mcdropout", "aleatoric", "ensemble"
    ] = "consistency"
    epochs: Count = 200
    batch_labeled: Count = 32
    batch_unlabeled: Count = 64
    learning_rate: Annotated[Number, Field(gt=0, allow_inf_nan=False)] = 1e-4
    seed: NaturalNumber = 0
    history: Literal["online", "sweep"] = "online"
    history_storage: Literal["memory", "disk"] = "memory"
    """Where the history is kept between checkpoints: `disk` is for one larger than the memory."""
    plain_pass: Literal["train", "eval"] = "train"  # noqa: S105 - a pass of the network
    history_start: NaturalNumber = 0
    """Epochs before predictions are remembered."""
    ranking_warmup: NaturalNumber = 0
    """Epochs before the ranking terms count."""
    features: Literal["online", "sweep"] = "sweep"
    """Features for the score of strangers: from a look of the best weights at training images at
    the end of the run, or, less able to tell strangers, from the passes that train."""
    average_decay: Share = 0.0
    """Decay of the moving average of the weights, evaluated beside the raw ones; 0 is off."""
    snapshots: NaturalNumber | None = None
    """Weights kept along the training, evenly spread; 30 for `aes`, none for other methods."""
    snapshot_start: NaturalNumber = 0
    """Epochs before the first snapshot may be taken."""
    snapshot_precision: Literal["float16", "float32"] = "float16"
    members: Count = 5
    """Networks of an `ensemble`, with seeds counted up from `seed`."""
    accumulate: Count = 1
    """Parts into which a batch is cut, so that it fits the memory of a device."""
    validate_every: Count = 1
    """Epochs between two validations; the last epoch is always validated."""
    checkpoint_every: Count = 1
    """Epochs between two checkpoints, and what a stop can lose; the last epoch always has one. For
    epochs of a second, in which writing takes its share."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Half precision is for CUDA only: on most CPUs it is slower."""
    workers: NaturalNumber | None = None
    """Processes that prepare batches; by default 0 on a CPU and 2 beside an accelerator."""
    device: Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"

    @property
    def uses_history(self) -> bool:
        """Whether predictions are remembered, and confidence is ranked by them."""
        return self.method in {"crl", "consistency"}

    @property
    def uses_unlabeled(self) -> bool:
        """Whether consistency is ranked, which needs no masks: unlabeled images take part."""
        return self.method == "consistency"

    @model_validator(mode="after")
    def _room_for_snapshots(self) -> Self:
        room = self.epochs - self.snapshot_start
        wanted = self.snapshots or (1 if self.method == "aes" else 0)
        if self.snapshots == 0 and self.method == "aes":
            raise ValueError("the method aes averages snapshots: snapshots cannot be 0")
        if wanted > room:
            raise ValueError(
                f"snapshots: {wanted} do not fit into the {max(room, 0)} epochs after "
                "snapshot_start: keep fewer, or train longer"
            )
        return self


class InferenceConfig(Section):
    """How a trained network is used."""

    passes: Count = 50
    """Passes of the decoder with random dropout, with `mcdropout` and `aleatoric`."""


class ExperimentConfig(Section):
    """Everything that decides the outcome of a run."""

    data: DataConfig = DataConfig()
    augmentation: AugmentationConfig = AugmentationConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    training: TrainingConfig = TrainingConfig()
    inference: InferenceConfig = InferenceConfig()
