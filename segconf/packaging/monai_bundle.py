"""A run as a MONAI bundle: a TorchScript network, its metadata, and a pipeline that uses it."""

import importlib.metadata
import json
import warnings
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from segconf import __version__
from segconf.confidence import probabilities_of
from segconf.inference.packaged import Packaged
from segconf.inference.torch_model import TorchModel
from segconf.models.encoders import encoder_normalization
from segconf.packaging.deployed import DeployedNetwork, networks_of

SCHEMA = (
    "https://github.com/Project-MONAI/MONAI-extra-test-data/releases/download/0.8.1/"
    "meta_schema_20240725.json"
)
_IGNITE = "0.5.0"
_COLOURS = ("red", "green", "blue")


class BundleNetwork(nn.Module):
    """From pixels (B, C, H, W), 0..255, to probabilities (B, K, H, W) on the same grid."""

    scale: Tensor
    offset: Tensor

    def __init__(
        self, network: nn.Module, size: tuple[int, int], mean: Tensor, std: Tensor
    ) -> None:
        """Wrap a network whose input has a grid of that size.

        Args:
            network: normalised images (B, C, h, w) to logits.
            size: height and width of its grid.
            mean: (C,) of pixels in 0..1.
            std: (C,) of pixels in 0..1.
        """
        super().__init__()
        self.network = network
        self.height, self.width = size
        self.register_buffer("scale", (1 / (255 * std))[:, None, None])
        self.register_buffer("offset", (mean / std)[:, None, None])

    def forward(self, image: Tensor) -> Tensor:
        """Resize as every image of segconf is resized, normalise, predict, resize back."""
        # In integers, which PyTorch interpolates on the CPU only.
        pixels = image.round().clamp(0, 255).to(torch.uint8).cpu()
        small = interpolate(
            pixels, [self.height, self.width], mode="bilinear", align_corners=False, antialias=True
        ).to(image.device)
        logits = self.network(small.float() * self.scale - self.offset)
        native = interpolate(
            logits, [image.shape[2], image.shape[3]], mode="bilinear", align_corners=False
        )
        return native.softmax(dim=1)


class _Logits(nn.Module):
    """The logits of a network that may return more."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network(images)[0]
        return logits


def bundle_network(model: TorchModel) -> torch.jit.ScriptModule:
    """The network of a model as TorchScript, of any batch and image size.

    Raises:
        ConfigError: the method of the model takes several passes.
    """
    config = model.config
    network = _Logits(
        DeployedNetwork(networks_of(model), calibrator=model.calibrator, features=False)
    ).eval()
    mean, std = encoder_normalization(config.model.encoder, config.model.channels)
    example = torch.zeros(2, config.model.channels, *config.data.size)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # about shapes, which are those of the one grid
        traced = torch.jit.trace(network, (example,))  # type: ignore[no-untyped-call]
        whole = BundleNetwork(traced, config.data.size, torch.tensor(mean), torch.tensor(std))
        scripted: torch.jit.ScriptModule = torch.jit.script(whole.eval())
    return scripted


def metadata(about: Packaged) -> dict[str, Any]:
    """Content of `configs/metadata.json`."""
    config = about.config
    channels, classes = config.model.channels, config.model.classes
    colours = _COLOURS if channels == len(_COLOURS) else ("intensity",) * channels
    shape = ["*", "*"]
    return {
        "schema": SCHEMA,
        "version": "1.0.0",
        "changelog": {"1.0.0": f"packaged by segconf {__version__}"},
        "monai_version": importlib.metadata.version("monai"),
        "pytorch_version": torch.__version__.partition("+")[0],
        "numpy_version": importlib.metadata.version("numpy"),
        "required_packages_version": {
            "nibabel": importlib.metadata.version("nibabel"),
            "pillow": importlib.metadata.version("pillow"),
            "pytorch-ignite": _IGNITE,
        },
        "task": "Segmentation with a confidence map",
        "description": about.model_card.strip().splitlines()[0].lstrip("# "),
        "authors": "see the model card",
        "copyright": about.licence,
        "intended_use": about.notice,
        "weights_sha256": about.weights_sha256,
        "confidence_threshold": about.confidence_threshold,
        "network_data_format": {
            "inputs": {
                "image": {
                    "type": "image",
                    "format": "RGB" if len(set(colours)) > 1 else "magnitude",
                    "modality": "n/a",
                    "num_channels": channels,
                    "spatial_shape": shape,
                    "dtype": "float32",
                    "value_range": [0, 255],
                    "is_patch_data": False,
                    "channel_def": {str(number): name for number, name in enumerate(colours)},
                }
            },
            "outputs": {
                "pred": {
                    "type": "probabilities",
                    "format": "segmentation",
                    "num_channels": classes,
                    "spatial_shape": shape,
                    "dtype": "float32",
                    "value_range": [0, 1],
                    "is_patch_data": False,
                    "channel_def": {
                        str(number): name for number, name in enumerate(about.class_names)
                    },
                }
            },
        },
    }


def inference(channels: int) -> dict[str, Any]:
    """Content of `configs/inference.json`: masks and confidence maps of a folder of pictures."""
    text = files("segconf.packaging").joinpath("inference.json").read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    if channels == 1:
        reader = content["reader"]
        reader["converter"] = reader["converter"].replace("'RGB'", "'L'")
        content["preprocessing"]["transforms"][1]["channel_dim"] = "no_channel"
    return content


def write_bundle(model: TorchModel, about: Packaged, folder: Path) -> float:
    """Write the files of a bundle into an empty folder.

    Returns:
        Largest difference of a probability to the model, on a random picture.

    Raises:
        OSError: it cannot be written.
    """
    for name in ("configs", "models", "docs"):
        (folder / name).mkdir(parents=True)
    network = bundle_network(model)
    difference = _difference(model, network)
    network.save(str(folder / "models" / "model.ts"))
    configs = {
        "metadata.json": metadata(about),
        "inference.json": inference(model.config.model.channels),
    }
    for name, content in configs.items():
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        (folder / "configs" / name).write_text(text, encoding="utf-8")
    (folder / "docs" / "README.md").write_text(about.model_card, encoding="utf-8")
    (folder / "LICENSE").write_text(f"{about.licence}\n", encoding="utf-8")
    return difference


def _difference(model: TorchModel, network: torch.jit.ScriptModule) -> float:
    generator = torch.Generator().manual_seed(0)
    shape = (model.config.model.channels, *model.config.data.size)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    expected = probabilities_of(model.grid_logits(pixels.permute(1, 2, 0)[None].numpy())[0])
    with torch.no_grad():
        found: Tensor = network(pixels[None].float())[0]
    return float((found - torch.from_numpy(expected)).abs().max())
