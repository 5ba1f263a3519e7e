"""Numbers and words that arrays and files of segconf agree on."""

IGNORE = 255
"""Label of a pixel that does not count: padding, or not annotated."""
FULL_SCALE = 65535
"""Level of confidence 1 in 16-bit maps; level 0 is confidence 0."""
ASSUMPTIONS = (
    "This holds on average for new images of the same kind as the validation images (exchangeable "
    "with them); nothing is promised for an image that is flagged as out of distribution."
)
"""Stands wherever a guarantee is shown."""
