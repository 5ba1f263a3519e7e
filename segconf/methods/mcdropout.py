"""Monte Carlo dropout (Gal and Ghahramani 2016) in the decoder."""

from torch import nn

from segconf.checkpoints.weight_files import Checkpoint
from segconf.config.ranges import Task
from segconf.config.schema import ExperimentConfig, ModelConfig
from segconf.inference.predictors import DropoutPredictor, Predictor
from segconf.methods.method import Method, register
from segconf.models.decoder import add_decoder_dropout


@register
class MonteCarloDropout(Method):
    """Dropout in the decoder, also at inference; the encoder is computed once."""

    name = "mcdropout"
    exportable = False

    def build(
        self, config: ModelConfig, task: Task = "segmentation", *, pretrained: bool = True
    ) -> nn.Module:
        """A network with spatial dropout after every block of the decoder."""
        network = super().build(config, task, pretrained=pretrained)
        add_decoder_dropout(network, config.dropout)
        return network

    def passes(self, config: ExperimentConfig) -> int:
        """Passes of the decoder."""
        return config.inference.passes

    def predictor(self, checkpoint: Checkpoint) -> Predictor:
        """One pass of the encoder, several of the decoder."""
        return DropoutPredictor(checkpoint.model, checkpoint.config.inference.passes)
