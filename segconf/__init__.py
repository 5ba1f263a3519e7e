"""Medical image segmentation whose confidence map can be trusted."""

__version__ = "0.1.0"
