"""How each method looks at an image."""

from segconf.checkpoints import Checkpoint
from segconf.inference.passes import Passes, SinglePass
from segconf.inference.stochastic import DropoutPasses, NoisyPasses


def passes_of(checkpoint: Checkpoint) -> Passes:
    """The passes of the method that a checkpoint was trained with."""
    config, network = checkpoint.config, checkpoint.model
    match config.training.method:
        case "softmax" | "crl" | "consistency":
            return SinglePass(network)
        case "mcdropout":
            return DropoutPasses(network, config.inference.passes)
        case "aleatoric":
            passes = DropoutPasses(network, config.inference.passes)
            return NoisyPasses(passes, config.model.classes)
