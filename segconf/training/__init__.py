"""The training run: run, epoch, step."""
