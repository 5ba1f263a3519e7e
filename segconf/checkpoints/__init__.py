"""Weights, training state, snapshots, and the hash that ties other files to them."""
