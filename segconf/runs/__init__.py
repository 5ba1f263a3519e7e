"""The run folder: everything needed to understand, repeat and continue a training."""
