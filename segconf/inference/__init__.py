"""Prediction: a mask and a confidence map for new images, on the grid of their files."""
