"""Encoders: which ones exist, their pixel statistics, and their weights from a local file."""

import difflib
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from segconf.errors import CheckpointError, ConfigError
from segconf.models.libraries import get_pretrained_cfg, smp, timm
from segconf.models.pretrained import WEIGHTS, pretrained_folder, pretrained_names

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


HALF_ENCODERS = ("inceptionv4", "inceptionresnetv2", "xception")


RGB = 3


SHOWN_ENCODERS = 5


OWN_CLASSIFIERS = (
    "preact_resnet20",
    "preact_resnet110",
    "densenet_bc_100_12",
    "resnet18_32",
    "mlp",
)
"""Names of `classifiers`, for hints."""


def encoder_normalization(
    encoder: str, channels: int
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel, for pixels in [0, 1].

    The table of timm, which segmentation-models-pytorch reads for its `tu-` encoders, is at hand
    without a network: the same encoder is fed the same numbers everywhere. Encoders that the
    table does not know were trained with the ImageNet statistics, but for three. An input that is
    not RGB gets the average over the channels.
    """
    mean, std = _rgb_normalization(encoder.removeprefix("tu-").removeprefix("timm-"))
    if channels != RGB:
        return (sum(mean) / RGB,) * channels, (sum(std) / RGB,) * channels
    return mean, std


def _rgb_normalization(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    if name in HALF_ENCODERS:
        return HALF
    pretrained = get_pretrained_cfg(name)
    if pretrained is not None and pretrained.mean and pretrained.std:
        return tuple(pretrained.mean), tuple(pretrained.std)
    return IMAGENET


def check_encoder(name: str) -> None:
    """Refuse a name that neither segmentation-models-pytorch nor timm knows."""
    known = [*smp.encoders.encoders, *(f"tu-{model}" for model in timm.list_models())]
    if name.partition(".")[0] not in known:
        raise _unknown(name, known, example="resnet34")


def check_classifier(name: str) -> str:
    """The name that timm gives to a classifier; `tu-` and `timm-` may stand before it."""
    known = timm.list_models()
    plain = name.removeprefix("tu-").removeprefix("timm-")
    if plain.partition(".")[0] not in known:
        raise _unknown(name, [*OWN_CLASSIFIERS, *known], example="preact_resnet20")
    return plain


def _unknown(name: str, known: Sequence[str], *, example: str) -> ConfigError:
    nearest = difflib.get_close_matches(name, known, SHOWN_ENCODERS, 0.5)
    hint = f"Did you mean {', '.join(nearest)}?" if nearest else f"For example: {example}."
    return ConfigError(f"model.encoder = {name}: unknown encoder. {hint}")


def hub_out_of_reach(encoder: str, error: Exception) -> CheckpointError:
    """What is said where ImageNet weights cannot be had."""
    return CheckpointError(
        f"model.encoder_weights = imagenet: the ImageNet weights of {encoder} could not "
        f"be fetched from the model hub ({type(error).__name__}). Two ways out:\n"
        "  model.encoder_weights=FILE   a local file (.pth or .safetensors)\n"
        "  model.encoder_weights=none   train from scratch, with lower quality"
    )


PREFIXES = ("encoder.model.", "encoder.", "model.", "module.", "")


CLASSIFIERS = ("fc.", "_fc.", "classifier.", "head.", "head_dist.", "last_linear.", "heads.")


FINAL_CONVOLUTION = ("conv_head.", "bn2.")
"""Of timm's EfficientNets: part of the classifier, absent from the encoder."""


SHOWN_KEYS = 10


UNREADABLE = (
    *(OSError, RuntimeError, EOFError, LookupError, ValueError, TypeError, AttributeError),
    SafetensorError,
)
"""What reading a damaged file can end in."""


def find_weights_file(name: str) -> Path:
    """The file as given, else in the folder named by SEGCONF_WEIGHTS, else a pretrained model."""
    folder = os.environ.get("SEGCONF_WEIGHTS")
    candidates = [Path(name), *([Path(folder) / name] if folder else [])]
    for path in candidates:
        if path.is_file():
            return path
    if name in pretrained_names():
        return pretrained_folder(name) / WEIGHTS
    looked = " and ".join(str(path) for path in candidates)
    raise CheckpointError(
        f"model.encoder_weights = {name}: no such file (looked for {looked}). Give an existing "
        ".pth or .safetensors file, the name of a pretrained model, `imagenet` (needs the model "
        "hub) or `none`, or name the folder of the weights with SEGCONF_WEIGHTS."
    )


def load_encoder_weights(encoder: nn.Module, path: Path, *, encoder_name: str) -> None:
    """Load every weight of the encoder from a file; a classifier in the file is left out.

    An input layer made for another number of channels is adapted: summed over the channels for a
    grey input, repeated and rescaled otherwise.

    Raises:
        CheckpointError: when the file is unsafe or broken, or any key is missing or unexpected.
    """
    wanted = encoder.state_dict()
    given = _match_layout(read_tensors(path), wanted)
    missing = [
        key for key in wanted if key not in given and not key.endswith("num_batches_tracked")
    ]
    unexpected = [key for key in given if key not in wanted]
    for key in given.keys() & wanted.keys():
        given[key] = _fit_channels(given[key], wanted[key])
    wrong = [
        f"{key} {tuple(given[key].shape)} instead of {tuple(wanted[key].shape)}"
        for key in wanted
        if key in given and given[key].shape != wanted[key].shape
    ]
    if missing or unexpected or wrong:
        found = [
            f"  {what}: {_shown(keys)}"
            for what, keys in (("missing", missing), ("unexpected", unexpected), ("shape", wrong))
            if keys
        ]
        raise CheckpointError(
            "\n".join([f"{path}: these are not the weights of the encoder {encoder_name}.", *found])
        )
    encoder.load_state_dict(given, strict=False)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Tensors of a .pth or .safetensors file. Nothing in the file is ever executed."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CheckpointError(
            f"{path}: refused: damaged, or it holds more than tensors, and opening such a file "
            "could run foreign code. Save the state_dict alone, best as .safetensors."
        ) from error
    except UNREADABLE as error:
        raise CheckpointError(f"{path}: not a readable weights file ({error}).") from error
    if isinstance(content, Mapping) and isinstance(content.get("state_dict"), Mapping):
        content = content["state_dict"]
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) for value in content.values()
    ):
        raise CheckpointError(f"{path}: expected a state_dict (names and tensors).")
    return dict(content)


def _match_layout(given: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename keys to the encoder's: another prefix, or stages joined by _ instead of a dot."""
    names = {_plain(key): key for key in wanted}
    prefix = max(PREFIXES, key=lambda p: sum(key.startswith(p) for key in given) * bool(p))
    if not all(key.startswith(prefix) for key in given if not key.startswith(("decoder.", "seg"))):
        prefix = ""
    matched: dict[str, Tensor] = {}
    for key, value in given.items():
        if prefix and not key.startswith(prefix):
            continue  # decoder and head of a whole network
        name = key.removeprefix(prefix)
        own = names.get(_plain(name))
        # Some networks keep a normalisation under the name of their classifier.
        if own is None and name.startswith((*CLASSIFIERS, *FINAL_CONVOLUTION)):
            continue
        matched[own or name] = value
    return matched


def _plain(key: str) -> str:
    return key.removeprefix("model.").replace(".", "_")


def _fit_channels(weight: Tensor, wanted: Tensor) -> Tensor:
    """Adapt the input layer (out, in, h, w) to another number of input channels."""
    if weight.ndim != wanted.ndim or weight.shape == wanted.shape or weight.ndim < 4:  # noqa: PLR2004
        return weight
    others_agree = weight.shape[:1] + weight.shape[2:] == wanted.shape[:1] + wanted.shape[2:]
    given, needed = weight.shape[1], wanted.shape[1]
    if not others_agree or given != 3:  # noqa: PLR2004 - only an RGB input layer is adapted
        return weight
    if needed == 1:
        return weight.sum(dim=1, keepdim=True)
    repeated = weight[:, [channel % given for channel in range(needed)]]
    return repeated * (given / needed)


def _shown(keys: list[str]) -> str:
    more = f" and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else ""
    return ", ".join(keys[:SHOWN_KEYS]) + more
