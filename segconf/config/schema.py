"""Sections of the experiment file: names, types, ranges and defaults."""

import math
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    Strict,
    ValidationInfo,
    model_validator,
)

from segconf.config.ranges import (
    MOST_CLASSES,
    Count,
    Device,
    Epochs,
    Flag,
    Fraction,
    NaturalNumber,
    Number,
    Positive,
    Probability,
    Section,
    Task,
    Weight,
)
from segconf.images.types import DEFAULT_MAX_PIXELS
from segconf.registry import METHODS


def _divisible_by_32(side: int, info: ValidationInfo) -> int:
    """Refuse a side that a UNet cannot halve five times; a classifier takes any."""
    if side % 32 and info.data.get("task") != "classification":
        below, above = max(32, side // 32 * 32), math.ceil(side / 32) * 32
        nearest = f"{above}" if below == above else f"{below} or {above}"
        raise ValueError(
            f"must be divisible by 32 (five poolings of a network for masks): take {nearest}. "
            "For labels any size will do, with data.task = classification"
        )
    return side


def _known_method(name: str) -> str:
    if name not in METHODS.names():
        raise ValueError(f"expected one of {', '.join(METHODS.names())}")
    return name


MethodName = Annotated[str, AfterValidator(_known_method)]
Side = Annotated[int, Strict(), Field(ge=1, le=16_384), AfterValidator(_divisible_by_32)]


_GONE = ("pseudo_labels", "pseudo_labels_folder")
"""Keys of the data that `corrections` replaces."""


class DataConfig(Section):
    """Which images are used, and on which grid."""

    task: Task = "segmentation"
    """A class for every pixel, or one for the image; found by itself where the data set is clear.
    """
    size: tuple[Side, Side] = (192, 256)
    """Height and width of the network's grid. With labels: that of small images when not given."""
    class_names: tuple[str, ...] = ()
    """Of classification, in the order of their numbers; those of the data set when not given."""
    columns: tuple[str, ...] = ()
    """Of a table, in the order in which the network takes them; that of the table when not given.
    """
    labels: Path | None = None
    """Table of labels (.csv), where it does not lie beside the images."""
    labeled: Count | None = None
    """How many training masks may be used, all when not given: those of so many groups (volumes,
    patients) where a group holds several cases, else of so many images."""
    labeled_list: Path | None = None
    """Ids of the images whose masks may be used: .txt, .csv, .json or .npy."""
    split_seed: NaturalNumber | None = None
    """Decides which masks may be used; `training.seed` when not given."""
    labels_from_query: Path | None = None
    """List that `segconf query` wrote: its images, and those that the queried run had labeled."""
    corrections: tuple[Path, ...] = ()
    """Prediction folders that were reviewed: masks or labels that were accepted or corrected are
    used. The later of two folders counts."""
    validation_fraction: Fraction = 0.15
    """Fraction of a folder data set without `val/` that is held out for validation."""
    test_fraction: Fraction = 0.15
    """Fraction of a folder data set without `test/` that is held out for testing."""
    ignore_255: Flag = False
    """With more than two classes, mask value 255 means "not annotated"."""
    intensity_window: tuple[Number, Number] | None = None
    """NIfTI intensities shown as black and white; percentiles 0.5 and 99.5 when not given."""
    max_pixels: Count = DEFAULT_MAX_PIXELS
    """Larger pictures are refused."""

    @model_validator(mode="before")
    @classmethod
    def _without_unused(cls, values: object) -> object:
        """Leave out keys that are gone where they were not used: runs keep all their settings."""
        if not isinstance(values, dict):
            return values
        return {key: v for key, v in values.items() if key not in _GONE or v is not None}

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        choices = (self.labeled, self.labeled_list, self.labels_from_query)
        if sum(choice is not None for choice in choices) > 1:
            raise ValueError(
                "labeled, labeled_list and labels_from_query exclude each other: give one of them"
            )
        if self.validation_fraction + self.test_fraction >= 1:
            raise ValueError("validation_fraction and test_fraction leave no image for training")
        if self.intensity_window and self.intensity_window[0] >= self.intensity_window[1]:
            raise ValueError("intensity_window must be [low, high] with low < high")
        return self


class AugmentationConfig(Section):
    """Random views of the labeled images, and those that are recorded in the history."""

    scale: tuple[Weight, Weight] = (0.7, 1.5)
    """Smallest and largest zoom before the random crop."""
    padding: Annotated[int, Strict(), Field(ge=0, le=1024)] = 0
    """Pixels added on every side before the random crop; 4 when not given, with labels."""
    horizontal_flip: Probability = 0.5
    vertical_flip: Probability = 0.5
    """With labels 0, and `scale` [1, 1], when not given: as is usual for photographs."""
    rotation: Annotated[Number, Field(ge=0, le=180)] = 0.0
    """Largest rotation in degrees, either way; 0 is off, as in the paper."""
    color_jitter: Fraction = 0.0
    """Largest relative change of brightness, contrast and saturation; hue changes by a tenth of
    it. 0 is off, as in the paper."""
    history_views: Literal["unaugmented", "flipped"] = "unaugmented"
    """Views that are recorded in the history: as they are, or with random flips, which are undone
    before recording, and with the colour jitter of the augmented views."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not 0 < self.scale[0] <= self.scale[1]:
            raise ValueError("scale must be [smallest, largest] with 0 < smallest <= largest")
        return self


class ModelConfig(Section):
    """The network."""

    encoder: str = "resnet34"
    encoder_weights: str = "imagenet"
    """`imagenet` (fetched from the hub), `none`, a file (.pth or .safetensors), or the name of a
    pretrained model, whose encoder is taken."""
    channels: Annotated[int, Strict(), Field(ge=1, le=4096)] = 3
    """Of the images, or columns of a table."""
    classes: Annotated[int, Strict(), Field(ge=2, le=MOST_CLASSES)] = 2
    """Those of the data set when not given, with labels."""
    dropout: Fraction = 0.2
    """Probability that a channel of the decoder is dropped, with `mcdropout` and `aleatoric`."""


class LossConfig(Section):
    """The supervised loss, weights of the other terms, and how pixels are paired."""

    segmentation: Literal["cross_entropy", "dice", "dice_ce"] = "cross_entropy"
    """Supervised loss: cross-entropy, soft Dice over the batch, or their sum."""
    target: Literal["ranking", "pointwise"] = "ranking"
    """Order confidence like correctness and consistency, or pull it to their values (L1)."""

    correctness_weight: Weight = 0.5
    consistency_weight: Weight = 0.15
    distillation_weight: Weight = 1.0
    """Of the cross-entropy to the mean of earlier predictions, and of unaugmented labeled images to
    their masks, with `distillation`."""
    pairs: Literal["all"] | Count = 262_144
    """A random cycle through all pixels, or a number of random pairs: noisier, but far cheaper."""
    normalization: Literal["separate", "joint"] = "separate"
    pair_scope: Literal["group", "batch"] = "group"
    noise_samples: Count = 10
    """Draws of the logits in the likelihood of `aleatoric`."""
    mmce_weight: Weight = 3.0
    """Of the penalty of `mmce`; that of its comparison in Liu et al. (2022)."""
    mmce_pixels: Count = 2048
    """Labeled pixels of a batch that `mmce` draws; the cost grows with their square."""
    cape_targets: Literal["kernel", "bins"] = "kernel"
    """How `cape` finds pixels with similar probabilities."""
    cape_bandwidth: Positive = 0.05
    """Of the kernel; that of Liu et al. (2022), as are the following."""
    cape_bins: Annotated[int, Strict(), Field(ge=1, le=1000)] = 5
    """Bins with equally many pixels."""
    cape_every: Count = 4
    """One of so many epochs has frequencies as targets, the others have the masks."""
    cape_patience: Count = 3
    """Validations without a lower NLL after which the first phase, without frequencies, ends."""


class TrainingConfig(Section):
    """Schedule of the run."""

    method: MethodName = "consistency"
    start_from: str | None = None
    """Whole network to start from instead of encoder weights: the name of a pretrained model, a run
    folder or a weights file."""
    epochs: Epochs = 200
    patience: Count | None = None
    """Validations in a row without a better mIoU or AURC after which a run ends before its last
    epoch; none end it when not given. It counts once the ranking terms have their full weight."""
    batch_labeled: Count = 32
    batch_unlabeled: Count = 64
    learning_rate: Positive = 1e-4
    schedule: Literal["constant", "cosine", "steps"] = "constant"
    """How the learning rate falls: not at all, along half a cosine to 0 at the end, or by a factor
    of 10 after 1/2 and again after 5/6 of the epochs."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    weight_decay: Weight = 0.0
    """Decoupled from the gradient with `adamw`, else an L2 penalty."""
    momentum: Fraction = 0.9
    """Of `sgd`."""
    seed: NaturalNumber = 0
    history: Literal["online", "sweep"] = "online"
    history_storage: Literal["memory", "disk"] = "memory"
    """Where the history is kept between checkpoints: `disk` is for one larger than the memory."""
    unaugmented_bn_mode: Literal["train", "eval"] = "train"
    """BatchNorm mode of the pass over unaugmented views."""
    history_start: NaturalNumber = 0
    """Epochs before predictions are recorded."""
    ranking_warmup: NaturalNumber = 0
    """Epochs before the ranking terms, and those of `distillation` and `mmce`, count."""
    ranking_ramp: NaturalNumber = 0
    """Epochs after the warm-up over which these terms grow to their weights."""
    ood_detector: Flag = True
    """Fit the out-of-distribution detector at the end of the run."""
    ema_decay: Fraction = 0.0
    """Decay of the exponential moving average of the weights, evaluated beside them; 0 is off."""
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
    epochs of a second, in which writing takes a large part."""
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    """Half precision is for CUDA only: on most CPUs it is slower."""
    workers: NaturalNumber | None = None
    """Processes that prepare batches; by default 0 on a CPU and 2 beside an accelerator."""
    device: Device = "auto"

    @model_validator(mode="after")
    def _room_for_snapshots(self) -> Self:
        room = self.epochs - self.snapshot_start
        if (self.snapshots or 0) > room:
            raise ValueError(
                f"snapshots: {self.snapshots} do not fit into the {max(room, 0)} epochs after "
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

    @model_validator(mode="after")
    def _colours_to_change(self) -> Self:
        jitter, channels = self.augmentation.color_jitter, self.model.channels
        if jitter and channels not in (1, 3) and not self.has_table:
            raise ValueError(
                f"augmentation.color_jitter = {jitter}: changes grey or RGB images, but "
                f"model.channels = {channels}. Leave it out, or use 1 or 3 channels"
            )
        return self

    @property
    def output_size(self) -> tuple[int, int]:
        """Height and width of what is predicted: a label is a mask of one pixel."""
        return (1, 1) if self.data.task == "classification" else self.data.size

    @property
    def has_table(self) -> bool:
        """Whether rows of a table are classified, not images."""
        return self.model.encoder == "mlp"
