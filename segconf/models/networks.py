"""Which network a task has: a UNet for masks, a classifier for labels."""

from torch import nn

from segconf.config.ranges import Task
from segconf.config.schema import ModelConfig
from segconf.models.classifiers import build_classifier
from segconf.models.unet import build_unet


def build_network(config: ModelConfig, task: Task, *, pretrained: bool = True) -> nn.Module:
    """Network of the configuration: images (B, C, H, W) to logits.

    Logits are (B, K, H, W) for masks and (B, K, 1, 1) for labels: a label is a mask of one pixel.

    Args:
        config: the model section.
        task: what is predicted.
        pretrained: False when trained weights follow, so that no encoder weights are needed.
    """
    match task:
        case "segmentation":
            return build_unet(config, pretrained=pretrained)
        case "classification":
            return build_classifier(config, pretrained=pretrained)
