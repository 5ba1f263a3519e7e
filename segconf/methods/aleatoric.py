"""Aleatoric uncertainty (Kendall and Gal 2017): predicted variance of the logits."""

import torch
from torch import Tensor, nn

from segconf.checkpoints.weight_files import Checkpoint
from segconf.config.ranges import Task
from segconf.config.schema import ExperimentConfig, LossConfig, ModelConfig
from segconf.errors import ConfigError
from segconf.inference.predictors import DropoutPredictor, NoisyLogits, Predictor
from segconf.losses.noisy_logits import mean_and_log_variance, sampled_cross_entropy
from segconf.methods.mcdropout import MonteCarloDropout
from segconf.methods.method import register


@register
class Aleatoric(MonteCarloDropout):
    """Predicted variance of the logits, with dropout."""

    name = "aleatoric"
    exportable = False

    def build(
        self, config: ModelConfig, task: Task = "segmentation", *, pretrained: bool = True
    ) -> nn.Module:
        """A network with dropout whose K logits are followed by their K log-variances."""
        doubled = config.model_copy(update={"classes": 2 * config.classes})
        return super().build(doubled, task, pretrained=pretrained)

    def check(self, config: ExperimentConfig) -> None:
        """Refuse a loss that is no likelihood: variances are learned from nothing else."""
        if config.loss.segmentation != "cross_entropy":
            raise ConfigError(
                f"loss.segmentation = {config.loss.segmentation}: the method aleatoric learns its "
                "variances from the likelihood. Set loss.segmentation=cross_entropy."
            )

    def supervised_sum(self, outputs: Tensor, masks: Tensor, loss: LossConfig) -> Tensor:
        """Negative log-likelihood of the masks, averaged over draws of the logits."""
        mean, log_variance = mean_and_log_variance(outputs)  # (B, K, H, W) each
        # From the global generator, as dropout: its state is kept for every process.
        noise = torch.randn(loss.noise_samples, *mean.shape, device=mean.device)
        return sampled_cross_entropy(mean, log_variance, masks, noise).sum()

    def predictor(self, checkpoint: Checkpoint) -> Predictor:
        """Dropout passes, each with a draw of its logits."""
        config = checkpoint.config
        passes = DropoutPredictor(checkpoint.model, config.inference.passes)
        return NoisyLogits(passes, config.model.classes)
